"""A model from a loopback hub through the pipeline: real child processes, the real client, the real store."""

import json
import os

import pytest

from pipeline.run.run import Run, prepare_plan
from pipeline.store.store import Store
from pipeline.store.verify import verify
from stages.base.reader import read
from stages.fetch.config import TOKENIZER_FILES
from stages.fetch.stage import build_model
from stages.models.config import ModelConfig
from tests.stages.fetch import hub_server
from tests.stages.fetch.settings import model_values

TOKEN = "ms-0123456789-secret"
SMALL = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2}


@pytest.fixture(scope="module")
def content(tmp_path_factory):
    """Files of a small model."""
    root = tmp_path_factory.mktemp("model")
    config = read(ModelConfig, model_values(**SMALL))
    build_model(config, iter(["Tom has 3 apples.", "#### 3"] * 20), 0, root)
    return {file.name: file.read_bytes() for file in root.iterdir()}


@pytest.fixture
def hub(content, monkeypatch):
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.delenv("MODELSCOPE_CACHE", raising=False)
    monkeypatch.setenv("MODELSCOPE_API_TOKEN", TOKEN)
    with hub_server.serve() as served:
        served.repositories["model/me/tiny"] = dict(content)
        monkeypatch.setenv("MODELSCOPE_ENDPOINT", served.url)
        yield served


def overrides(store, *more):
    shape = {key: value for key, value in model_values(**SMALL).items() if key in read_keys()}
    return [
        f"store={store}",
        "model.source=modelscope",
        "model.hub={base: me/tiny, instruct: me/tiny, id: null, revision: v1}",
        *(f"model.{key}={value}" for key, value in shape.items()),
        *more,
    ]


def read_keys():
    return {*SMALL, "num_attention_heads", "num_key_value_heads", "vocab_size", "rope_theta", "rms_norm_eps"}


def fetch(arguments):
    plan, store = prepare_plan(arguments)
    Run(plan, store, arguments).build("fetch")
    return store.path(plan.spec("fetch").key)


def test_a_model_is_fetched_once_and_then_no_request_is_made(hub, tmp_path, content):
    arguments = overrides(tmp_path / "store")
    artifact = fetch(arguments)
    for name, expected in content.items():
        assert (artifact / name).read_bytes() == expected
    assert set(TOKENIZER_FILES) < {file.name for file in artifact.iterdir()}
    manifest = json.loads((artifact / "manifest.json").read_text())
    assert manifest["config"]["model"]["hub"]["revision"] == "v1"
    assert manifest["versions"]["modelscope-hub"] == "0.5.1"
    assert json.loads((artifact / "result.json").read_text())["origin"] == f"model me/tiny@v1 at {hub.url}"
    assert not list((tmp_path / "store" / ".work").glob("fetch-*"))
    assert not list(verify(Store(tmp_path / "store"), deep=True))
    hub.requests.clear()
    plan, store = prepare_plan(arguments)
    assert store.problem(plan.spec("fetch").key) is None
    assert fetch(arguments) == artifact
    assert not hub.requests
    output = b"".join(file.read_bytes() for file in (tmp_path / "store").rglob("*") if file.is_file())
    assert TOKEN.encode() not in output


def test_two_stores_share_a_cache(hub, tmp_path):
    cache = f"fetch.cache_dir={tmp_path / 'cache'}"
    first = fetch(overrides(tmp_path / "one", cache))
    hub.requests.clear()
    second = fetch(overrides(tmp_path / "two", cache))
    assert not hub.downloads()
    for name in ("model.safetensors", "tokenizer.json"):
        assert os.path.samefile(first / name, second / name)
