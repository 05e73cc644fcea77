import pytest

from stages.base.reader import read
from stages.fetch.config import MODEL, source_warnings
from stages.fetch.sources import FETCH, choose_source, url_fault
from stages.models.config import ModelConfig
from tests.stages.fetch.settings import dataset, fetch, model, sourced, values

HUB = {"base": "me/base", "instruct": "me/chat", "id": None, "revision": "master"}
ROWS = {"id": "me/rows", "revision": "v1"}
FILES = {"train": {"name": "data/*.jsonl", "sha256": None}, "test": None}


def test_a_path_wins_over_a_hub_and_a_hub_over_addresses():
    everything = {"path": "/x", "hub": HUB, "files": FILES}
    assert choose_source(everything) == "local"
    assert choose_source(everything | {"path": None}) == "modelscope"
    assert choose_source(everything | {"path": None, "hub": None}) == "url"
    assert choose_source({"path": None, "hub": None}) == "local"


@pytest.mark.parametrize("size", ["0_5b", "1_5b", "3b", "7b", "14b", "32b", "72b"])
def test_the_shipped_models_name_both_variants(size):
    shipped = values("model", f"qwen2_5_{size}")
    name = f"Qwen/Qwen2.5-{size.replace('_', '.').upper()}"
    for variant, expected in (("base", name), ("instruct", f"{name}-Instruct")):
        result = read(ModelConfig, sourced(shipped | {"variant": variant}), "model")
        assert (result.source, result.hub_id) == ("modelscope", expected)
        assert MODEL.check(result) == []
    assert read(ModelConfig, sourced(shipped | {"path": "/x"}), "model").source == "local"


@pytest.mark.parametrize(
    "url",
    [
        "https://user:hunter2@h/x",
        "https://hunter2@h/x",
        "https://h/x?token=hunter2",
        "https://h/x?a=1&X-Amz-Signature=hunter2",
        "https://h/x?api_key=hunter2",
    ],
)
def test_addresses_with_secrets_are_refused_without_telling_them(url):
    (problem,) = FETCH.check(fetch(endpoint=url))
    assert "hunter2" not in str(problem)


@pytest.mark.parametrize("url", ["ftp://h/x", "/tmp/x", "h/x", "https://", ""])
def test_what_is_no_web_address_is_refused(url):
    assert "must be an http or https address" in str(url_fault(url))


def test_plain_addresses_pass():
    assert url_fault("https://h:8443/a/b.jsonl?download=true&keyword=monkey") is None
    assert FETCH.check(fetch(endpoint="https://hub.example/")) == []
    assert FETCH.check(fetch()) == []


def test_what_may_change_is_warned_of():
    moving = source_warnings(model(source="modelscope", hub=HUB), dataset())
    assert [problem.path for problem in moving] == ["model.hub.revision"]
    assert (
        source_warnings(model(source="modelscope", hub=HUB | {"revision": "v1.0"}), dataset(path=None)) == []
    )
    unknown = {"train": {"name": "https://h/x", "sha256": None}, "test": None}
    result = source_warnings(model(), dataset(path=None, files=unknown))
    assert [problem.path for problem in result] == ["dataset.files.train.sha256"]
    rows = dataset(path=None, source="modelscope", files=FILES, hub=ROWS | {"revision": "main"})
    assert [problem.path for problem in source_warnings(model(), rows)] == ["dataset.hub.revision"]
