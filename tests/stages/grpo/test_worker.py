import json
import os

import pytest

from stages.__main__ import main
from stages.grpo import worker


@pytest.mark.parametrize(
    ("role", "workers", "host", "cores", "wanted"),
    [
        (None, "1", "127.0.0.1", 8, None),
        ("MS_WORKER", "1", "127.0.0.1", 8, None),
        ("MS_WORKER", "2", "127.0.0.1", 8, 4),
        ("MS_WORKER", "4", "127.0.0.1", 2, 1),
        ("MS_SCHED", "2", "127.0.0.1", 8, None),
        ("MS_WORKER", "2", "203.0.113.7", 8, None),
    ],
)
def test_workers_of_one_machine_share_its_cores(monkeypatch, role, workers, host, cores, wanted):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(cores)))
    for name, value in (("MS_ROLE", role), ("MS_WORKER_NUM", workers), ("MS_SCHED_HOST", host)):
        if value is None:
            monkeypatch.delenv(name, raising=False)
        else:
            monkeypatch.setenv(name, value)
    assert worker.share_of_cores() == wanted


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
