"""A model from a loopback hub through the pipeline: real child processes, the real client, the real store."""

import json

from pipeline.run.run import Run, prepare_plan
from pipeline.store.verify import verify
from stages.base.reader import read
from stages.fetch.config import TOKENIZER_FILES
from stages.fetch.stage import build_model
from stages.models.config import ModelConfig
from tests.stages.fetch import hub_server
from tests.stages.fetch.settings import model_values

TOKEN = "ms-0123456789-secret"
SMALL = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2}
SHAPE = (*SMALL, "num_attention_heads", "num_key_value_heads", "vocab_size", "rope_theta", "rms_norm_eps")


def test_a_model_is_fetched_once_and_then_no_request_is_made(tmp_path, monkeypatch):
    monkeypatch.setenv("NO_PROXY", "*")
    monkeypatch.delenv("MODELSCOPE_CACHE", raising=False)
    monkeypatch.setenv("MODELSCOPE_API_TOKEN", TOKEN)
    values, source, store = model_values(**SMALL), tmp_path / "source", tmp_path / "store"
    source.mkdir()
    build_model(read(ModelConfig, values), iter(["Tom has 3 apples.", "#### 3"] * 20), 0, source)
    content = {file.name: file.read_bytes() for file in source.iterdir()}
    overrides = [
        f"store={store}", "model.source=modelscope",
        "model.hub={base: me/tiny, instruct: me/tiny, id: null, revision: v1}",
        *(f"model.{key}={values[key]}" for key in SHAPE),
    ]  # fmt: skip
    with hub_server.serve() as hub:
        hub.repositories["model/me/tiny"] = dict(content)
        monkeypatch.setenv("MODELSCOPE_ENDPOINT", hub.url)

        def fetch():
            plan, there = prepare_plan(overrides)
            Run(plan, there, overrides).build("fetch")
            return there.path(plan.spec("fetch").key)

        artifact = fetch()
        assert {name: (artifact / name).read_bytes() for name in content} == content
        assert set(TOKENIZER_FILES) < {file.name for file in artifact.iterdir()}
        manifest = json.loads((artifact / "manifest.json").read_text())
        assert manifest["versions"]["modelscope-hub"] == "0.5.1"
        origin = json.loads((artifact / "result.json").read_text())["origin"]
        assert origin == f"model me/tiny@v1 at {hub.url}"
        _, opened = prepare_plan(overrides)
        assert not list(verify(opened, deep=True))
        hub.requests.clear()
        assert fetch() == artifact and not hub.requests
    output = b"".join(file.read_bytes() for file in store.rglob("*") if file.is_file())
    assert TOKEN.encode() not in output
