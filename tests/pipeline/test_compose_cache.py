import json

import pytest

from pipeline.config import compose_cache
from pipeline.config.compose import compose
from pipeline.config.compose_cache import compose_cached
from pipeline.errors import ConfigError

AS_ARITH = ("tokenize=arith", "reward=arith")


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "grpoflow" / "compose"


def entries(cache):
    return len(list(cache.glob("*"))) if cache.exists() else 0


@pytest.fixture
def composed(monkeypatch):
    """One item per real composition."""
    calls: list[object] = []

    def counting(*arguments):
        calls.append(arguments)
        return compose(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(compose_cache, "compose", counting)
    return calls


def test_the_second_time_is_remembered_and_equal(composed):
    first, second = compose_cached(["seed=3"]), compose_cached(["seed=3"])
    assert first == second == compose(["seed=3"])
    assert len(composed) == 1


def test_overrides_and_their_order_count(composed):
    assert compose_cached(["seed=3", "seed=4"])["seed"] == 4
    assert compose_cached(["seed=4", "seed=3"])["seed"] == 3
    assert len(composed) == 2


def test_an_environment_variable_that_is_read_counts(monkeypatch):
    for value in ("/one", "/two"):
        monkeypatch.setenv("GRPOFLOW_STORE", value)
        assert compose_cached([])["store"] == value
    monkeypatch.delenv("GRPOFLOW_STORE")
    assert compose_cached([])["store"] == "store"
    monkeypatch.setenv("ANOTHER", "one")
    assert compose_cached(["store=${oc.env:ANOTHER}"])["store"] == "one"
    monkeypatch.setenv("ANOTHER", "two")
    assert compose_cached(["store=${oc.env:ANOTHER}"])["store"] == "two"


def test_the_content_of_every_config_file_counts(tmp_path):
    own = tmp_path / "own" / "dataset"
    own.mkdir(parents=True)
    base = "defaults: [arith]\n"
    for rows in (10, 20):
        (own / "mine.yaml").write_text(f"{base}train_rows: {rows}\n")
        overrides = ["dataset=mine", "tokenize=arith", "reward=arith"]
        assert compose_cached(overrides, own.parent)["dataset"]["train_rows"] == rows
    (own / "other.yaml").write_text(f"{base}train_rows: 30\n")
    overrides[0] = "dataset=other"
    assert compose_cached(overrides, own.parent)["dataset"]["train_rows"] == 30


def test_the_code_that_composes_counts(composed, tmp_path, monkeypatch):
    names = {file.name for file in compose_cache._code()}
    assert {"compose.py", "layout_names.py", "__init__.py"} <= names
    monkeypatch.setattr(compose_cache, "_code", lambda: [tmp_path / "code.py"])
    for text in ("one", "other", None):
        if text is not None:
            (tmp_path / "code.py").write_text(text)
        compose_cached([])
    assert len(composed) == 2


def test_groups_behind_links_count(tmp_path):
    """Hydra follows links to directories and to files; a directory that links to itself ends nowhere."""
    real, own = tmp_path / "real", tmp_path / "own"
    real.mkdir()
    own.mkdir()
    (own / "dataset").symlink_to(real)
    (real / "again").symlink_to(own)
    for rows in (10, 20):
        (real / "mine.yaml").write_text(f"defaults: [arith]\ntrain_rows: {rows}\n")
        assert compose_cached(["dataset=mine", *AS_ARITH], own)["dataset"]["train_rows"] == rows


def test_failures_are_not_remembered(cache):
    for _ in range(2):
        with pytest.raises(ConfigError, match="unknown key"):
            compose_cached(["train.betta=1"])
    assert entries(cache) == 0


def test_a_damaged_entry_is_composed_anew(cache):
    expected = compose_cached([])
    (entry,) = cache.iterdir()
    entry.write_text(json.dumps(expected)[:-10])
    assert compose_cached([]) == expected


def test_a_cache_that_cannot_be_written_only_costs_time(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert compose_cached([])["seed"] == 0
