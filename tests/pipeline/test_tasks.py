"""Luigi's tasks by name: what they build, and that the same artifact is the same task."""

from __future__ import annotations

import json

import luigi

import pipeline
from pipeline.cli import main
from pipeline.errors import StoreError
from pipeline.run.run import Run
from pipeline.store import history


def of(family, *overrides):
    task: luigi.Task = getattr(pipeline, family)(overrides=json.dumps(overrides))
    return task


def stage_tasks(*overrides):
    return {task.stage: task for task in of("RunGRPO", *overrides).deps()}


def test_runs_with_the_same_fingerprint_share_a_task(tmp_path):
    store = f"store={tmp_path}"
    first, same, second = (stage_tasks(store, more) for more in ("seed=0", "evaluate.k=2", "seed=1"))
    assert first["split"].task_id == same["split"].task_id != second["split"].task_id
    assert first["evaluate"].task_id != same["evaluate"].task_id
    assert len(first["split"].fingerprint) == 16


def test_a_failure_after_the_last_stage_is_reported(tmp_path, capsys, monkeypatch):
    """Luigi's message is suppressed, and the stages have nothing to report."""
    monkeypatch.setattr(Run, "report", lambda run: (_ for _ in ()).throw(StoreError("runs.jsonl: full")))
    assert main(["run", "--only", "strategy", f"store={tmp_path}"]) == 1
    assert "error: runs.jsonl: full" in capsys.readouterr().err


def test_training_stages_occupy_cards(tmp_path):
    luigi.configuration.get_config().set("resources", "cards", "0")
    used = {name: task.resources for name, task in stage_tasks(f"store={tmp_path}").items()}
    expected = {"sft": {"cards": 1}, "grpo": {"cards": 2}, "evaluate": {"cards": 1}}
    assert {name: cards for name, cards in used.items() if cards} == expected
    assert luigi.configuration.get_config().get("resources", "cards") == "2"


def test_a_stage_is_built_with_its_inputs_only(tmp_path, capsys):
    task = of("Strategy", f"store={tmp_path}", "layout=dp2_mp1_pp1")
    assert luigi.build([task], local_scheduler=True, log_level="ERROR")
    (record,) = history.runs(tmp_path).values()
    assert record.state == "finished" and list(record.artifacts) == ["strategy"]
    assert capsys.readouterr().out.endswith(f"strategy={tmp_path / record.artifacts['strategy']}\n")
    assert not (tmp_path / "split").exists()
