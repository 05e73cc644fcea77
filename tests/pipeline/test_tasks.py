"""Luigi's tasks by name: what they build, and that the same artifact is the same task."""

from __future__ import annotations

import json

import luigi
import pytest

import pipeline
from pipeline import tasks
from pipeline.store import history


@pytest.fixture(autouse=True)
def fresh(monkeypatch):
    """Reset Luigi's registries, as in a new process."""
    monkeypatch.setattr(tasks, "_runs", {})
    luigi.task_register.Register.clear_instance_cache()


def of(family, *overrides):
    task: luigi.Task = getattr(pipeline, family)(overrides=json.dumps(overrides))
    return task


def test_runs_with_the_same_fingerprint_share_a_task(tmp_path):
    store = f"store={tmp_path}"
    split, same, second = (of("Split", store, more) for more in ("seed=0", "evaluate.k=2", "seed=1"))
    assert split.task_id == same.task_id != second.task_id
    graph = of("RunGRPO", store).deps()
    assert split.task_id in {task.task_id for task in graph}
    (shown,) = (task.to_str_params() for task in graph if task.task_family == "Split")
    assert len(shown["fingerprint"]) == 16 and json.loads(shown["overrides"]) == [store]


def test_training_stages_occupy_cards(tmp_path):
    luigi.configuration.get_config().set("resources", "cards", "0")
    graph = of("RunGRPO", f"store={tmp_path}").deps()
    used = {task.task_family: task.resources for task in graph if isinstance(task, tasks.StageTask)}
    expected = {"Sft": {"cards": 1}, "Grpo": {"cards": 2}, "Evaluate": {"cards": 1}}
    assert {name: cards for name, cards in used.items() if cards} == expected
    assert luigi.configuration.get_config().get("resources", "cards") == "2"


def test_a_stage_is_built_with_its_inputs_only(tmp_path, capsys):
    task = of("Strategy", f"store={tmp_path}", "layout=dp2_mp1_pp1")
    assert luigi.build([task], local_scheduler=True, log_level="ERROR")
    (record,) = history.runs(tmp_path).values()
    assert record.state == "finished" and list(record.artifacts) == ["strategy"]
    assert capsys.readouterr().out.endswith(f"strategy={tmp_path / record.artifacts['strategy']}\n")
    assert not (tmp_path / "split").exists()
