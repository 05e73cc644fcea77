import json
import os
from pathlib import Path

from pipeline.cli import main
from pipeline.config.load import load
from pipeline.fingerprint import file_digest
from pipeline.plan.graph import plan
from pipeline.store import history
from pipeline.store.store import Store
from tests.pipeline.artifacts import commit_spec


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
