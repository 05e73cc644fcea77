import json
import os
from pathlib import Path

import pytest

from pipeline.cli import main
from pipeline.config.load import load
from pipeline.fingerprint import file_digest
from pipeline.plan.graph import plan
from pipeline.store import history
from pipeline.store.store import Store
from tests.pipeline.artifacts import commit_spec

LONG = "reward.functions=[my_rewards_module:length_penalised_accuracy]"


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """A store with two runs and the artifacts of the default graph except tokenize."""
    root = tmp_path_factory.mktemp("store")
    specs = plan(load([f"store={root}"]), file_digest).specs
    for spec in specs:
        if spec.name != "tokenize":
            commit_spec(Store(root), spec, {"file": spec.name}, started=100.0, ended=107.5)
    artifacts = {spec.name: str(spec.key) for spec in specs}
    for number, run in enumerate(("20261122-080000-aaaa", "20261122-090000-bbbb"), 1):
        output = {"config": {"train": {"learning_rate": number / 1000}}, "artifacts": artifacts}
        history.record(root, run, "started", overrides=[LONG], **output)
        history.record(root, run, "finished", result={"accuracy_sft": 0.25, "accuracy_grpo": 0.5})
    return root


JSON = ("verify", "verify --deep", "gc", "remote status", "runs", "show last", "diff last last", "watch",
        "plan", "layouts model=qwen2_5_7b cards=8", "config",
        "config --explain train.beta")  # fmt: skip


@pytest.mark.parametrize("command", JSON)
def test_json_output_can_be_parsed(command, root, tmp_path, capsys):
    path = [f"remote={tmp_path.as_uri()}"] if command.startswith("remote") else []
    assert main([*command.split(), "--json", f"store={root}", *path]) in (0, 10)
    json.loads(capsys.readouterr().out)


def test_json_of_verify_and_gc_names_damage_and_garbage(tmp_path, capsys):
    store = Store(tmp_path)
    for number in range(2):
        config = load([f"store={tmp_path}", f"seed={number}"])
        spec = plan(config, file_digest).spec("fetch_dataset")
        commit_spec(store, spec, {"file": "x"})
        started = {"overrides": [], "config": {}, "artifacts": {"fetch_dataset": str(spec.key)}}
        history.record(tmp_path, f"run{number}", "started", **started)
    paths = sorted(str(path) for path in tmp_path.glob("fetch_dataset/*"))
    assert len(paths) == 2

    def printed(*words, code=0):
        assert main([*words, "--json", f"store={tmp_path}"]) == code
        return dict(json.loads(capsys.readouterr().out))

    (Path(paths[0]) / "file").write_text("longer")
    assert [finding["path"] for finding in printed("verify", code=1)["damaged"]] == [paths[0]]
    repaired = printed("verify", "--repair")["damaged"]
    assert Path(repaired[0]["moved_to"]).is_dir() and printed("verify")["damaged"] == []
    garbage = printed("gc", "--keep", "0", "--delete")["garbage"]
    assert paths[1] in [item["path"] for item in garbage] and not os.path.exists(paths[1])
