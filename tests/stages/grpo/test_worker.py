import json

import pytest

from stages.__main__ import main


@pytest.mark.parametrize("stage", ["sft", "grpo", "evaluate"])
def test_a_device_that_mindspore_does_not_serve_is_refused_before_anything_is_read(stage, tmp_path, capsys):
    spec = {
        "stage": stage, "config": {"engine": {"name": "local", "device_target": "GPU"}}, "inputs": {},
        "output": str(tmp_path), "work": str(tmp_path), "progress_file": str(tmp_path / "progress"),
    }  # fmt: skip
    (tmp_path / "spec.json").write_text(json.dumps(spec), encoding="utf-8")
    assert main([stage, str(tmp_path / "spec.json")]) == 1  # the wheel holds no CUDA, here or anywhere
    told = capsys.readouterr().err
    assert "engine.device_target=GPU: MindSpore" in told and "set engine.device_target=CPU" in told
