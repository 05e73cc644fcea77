import subprocess
import sys

import pytest

from stages.fetch.config import check_dataset, external_files, split_files
from tests.stages.fetch.settings import FIXTURE, arith_values, dataset, gsm8k_values, model


def paths(**changes):
    return [problem.path for problem in check_dataset(dataset(**changes))]


def test_the_shipped_datasets_are_sound():
    assert paths() == []
    assert paths(path=str(FIXTURE)) == []


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"path": None, "source": "local"}, ["dataset.path"]),
        ({"path": None, "test_path": "x.jsonl"}, ["dataset.test_path"]),
        ({"arith": None}, ["dataset.arith"]),
        ({"train_rows": None}, ["dataset.train_rows"]),
        ({"test_path": "x.jsonl"}, ["dataset.test_path"]),
        ({"arith": {"min_addends": 5, "max_addends": 3, "worked_share": 0.4}}, ["dataset.arith.min_addends"]),
    ],
)
def test_contradictions_are_named(changes, expected):
    assert paths(**changes) == expected


def test_a_path_with_builtin_problems_is_refused_rather_than_ignored():
    from stages.base.reader import read
    from stages.fetch.config import DatasetConfig

    (problem,) = check_dataset(read(DatasetConfig, arith_values(path="/data")))
    assert problem.path == "dataset.path"
    assert "source=local" in str(problem)


def test_files_of_a_directory_and_of_a_pair(tmp_path):
    assert split_files(dataset(path=str(FIXTURE))) == (FIXTURE / "train.jsonl", FIXTURE / "test.jsonl")
    one, two = tmp_path / "a.jsonl", tmp_path / "b.jsonl"
    assert split_files(dataset(path=str(one), test_path=str(two))) == (one, two)


def test_external_files_are_those_that_the_stages_read(tmp_path):
    assert external_files(dataset()) == ()
    assert external_files(dataset(path=str(FIXTURE))) == (FIXTURE / "train.jsonl", FIXTURE / "test.jsonl")
    assert external_files(model()) == ()
    for name in ("config.json", "model.safetensors", "pytorch_model.bin", "README.md", "vocab.json"):
        (tmp_path / name).touch()
    files = external_files(model(source="local", path=str(tmp_path)))
    assert {file.name for file in files} == {"config.json", "model.safetensors", "vocab.json"}
    files = external_files(model(tokenizer_path=str(tmp_path)))
    assert [file.name for file in files] == ["vocab.json"]
    (tmp_path / "chat_template.jinja").touch()
    for settings in ({"source": "local", "path": str(tmp_path)}, {"tokenizer_path": str(tmp_path)}):
        assert tmp_path / "chat_template.jinja" in external_files(model(**settings))


def test_the_config_modules_stay_light():
    modules = "stages.fetch.config, stages.tokenize.config, stages.rewards.config"
    code = (
        f"import sys, {modules}; print([m for m in ('mindspore','numpy','tokenizers') if m in sys.modules])"
    )
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert output.strip() == "[]"


def test_gsm8k_needs_nothing_but_a_path():
    assert gsm8k_values()["arith"] is None
