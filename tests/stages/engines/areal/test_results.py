"""States to resume from, metrics, completions and the proof of a finished run, without AReaL."""

import importlib.util
import json
import sys
from types import ModuleType, SimpleNamespace

import pytest

from pipeline.config.load import load
from stages.base.errors import InputError
from stages.engines.areal import results
from stages.engines.areal.job import PROGRAMS


@pytest.fixture
def driver(monkeypatch):
    """The driver's module, with stand-ins for what it imports from AReaL."""
    for name in ("areal", "areal.api", "areal.api.cli_args", "areal.utils"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    sys.modules["areal"].PPOTrainer = None
    sys.modules["areal.api"].SaveLoadMeta = SimpleNamespace
    sys.modules["areal.api.cli_args"].GRPOConfig = sys.modules["areal.api.cli_args"].load_expr_config = None
    sys.modules["areal.utils"].network = SimpleNamespace()
    spec = importlib.util.spec_from_file_location("driver", PROGRAMS / "grpoflow_areal" / "driver.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Handler:
    """AReaL's RecoverHandler as far as the driver uses it: it overwrites one place."""

    def __init__(self, every, dies_at=None):
        self.config, self.last_step_info = SimpleNamespace(fileroot=""), None
        self._every, self._dies_at = every, dies_at

    def dump(self, engine, step_info):
        from pathlib import Path

        if (step_info.global_step + 1) % self._every:
            return
        place = Path(self.config.fileroot)
        place.mkdir(parents=True, exist_ok=True)
        (place / "weights").write_text("partial")
        if step_info.global_step == self._dies_at:
            raise KeyboardInterrupt
        (place / "weights").write_text(str(step_info.global_step + 1))
        self.last_step_info = step_info


def train(driver, checkpoints, handler, slot, steps):
    driver.alternate(handler, checkpoints, slot)
    for step in steps:
        handler.dump(None, SimpleNamespace(global_step=step))


@pytest.mark.parametrize("dies_at", range(1, 6))
def test_a_kill_during_the_write_of_a_state_leaves_the_one_before(driver, tmp_path, dies_at):
    with pytest.raises(KeyboardInterrupt):
        train(driver, tmp_path, Handler(1, dies_at), "a", range(8))
    slot, step = results.read_state(tmp_path)
    assert step == dies_at
    assert (tmp_path / slot / "weights").read_text() == str(step)
    assert results.prepare_resume(tmp_path, 8) == step == driver.read_state(tmp_path)[1]
    following = {"a": "b", "b": "a"}[slot]
    train(driver, tmp_path, Handler(1), following, range(step, 8))
    slot, step = results.read_state(tmp_path)
    assert (step, (tmp_path / slot / "weights").read_text()) == (8, "8")


def test_a_state_is_named_only_when_it_was_written(driver, tmp_path):
    train(driver, tmp_path, Handler(every=3), "a", range(5))
    assert results.read_state(tmp_path) == ("a", 3)


def test_a_directory_without_a_complete_state_is_removed(tmp_path):
    (tmp_path / "c" / "a").mkdir(parents=True)
    assert results.prepare_resume(tmp_path / "c", 4) is None and not (tmp_path / "c").exists()
    (tmp_path / "c" / "b").mkdir(parents=True)
    (tmp_path / "c" / "state.json").write_text('{"slot": "b", "step": 9}')
    assert results.prepare_resume(tmp_path / "c", 4) is None  # of a longer run


@pytest.mark.parametrize("text", ["", "{", "[]", '{"slot": "a"}', '{"slot": "a", "step": "x"}'])
def test_a_damaged_state_is_none(tmp_path, text):
    (tmp_path / "a").mkdir()
    (tmp_path / "state.json").write_text(text)
    assert results.read_state(tmp_path) is None


def test_each_step_has_its_rows_in_an_order_that_the_seed_decides(driver, tmp_path):
    data = tmp_path / "train.jsonl"
    data.write_text("".join(json.dumps({"row": row}) + "\n" for row in range(5)))
    task = {"data": str(data), "steps": 4, "prompts_per_step": 3, "seed": 1}
    rows = [driver.Rows(task)[index]["row"] for index in range(12)]
    assert len(driver.Rows(task)) == 12
    assert sorted(rows[:5]) == sorted(rows[5:10]) == list(range(5)) and rows[:5] != rows[5:10]
    assert rows == [driver.Rows(task)[index]["row"] for index in range(12)]
    assert rows != [driver.Rows(task | {"seed": 2})[index]["row"] for index in range(12)]


def test_metrics_have_grpoflows_names():
    data = {
        "ppo_actor/task_reward/avg": 0.5, "ppo_actor/seq_len/avg": 30.0, "ppo_actor/prompt_len/avg": 20.0,
        "timeperf/rollout": 6.0, "timeperf/train_step": 2.0, "timeperf/train_step__count": 1.0,
        "ppo_actor/update/version_stats/sample_staleness_theta_max": 2.0, "rollout/part_number": 0.25,
        "other": 1.0,
    }  # fmt: skip
    row = results.read_metrics(json.dumps({"step": 3, "data": data}))
    assert row == {
        "step": 3, "reward": 0.5, "prompt_length": 20.0, "completion_length": 10.0, "rollout_s": 6.0,
        "train_s": 2.0, "step_s": 8.0, "wait_share": 0.75, "staleness_max": 2.0, "reward/number": 0.25,
    }  # fmt: skip


def test_completions_are_reduced_to_the_first_of_each_step(tmp_path):
    file = tmp_path / "completions.jsonl"
    rows = [{"step": step, "completion": str(n)} for n in range(3) for step in (2, 1)]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    results.keep_logged(file, load(["train.logged_completions=2"]).train)
    kept = [json.loads(line) for line in file.read_text().splitlines()]
    assert [(row["step"], row["completion"]) for row in kept] == [(1, "0"), (1, "1"), (2, "0"), (2, "1")]


def test_the_last_step_and_a_complete_model_prove_a_finished_run(tmp_path):
    (tmp_path / "metrics.jsonl").write_text('{"step": 1}\n{"step": 2}\n')
    results.check_steps(tmp_path / "metrics.jsonl", 2)
    with pytest.raises(InputError, match="must end with step 3"):
        results.check_steps(tmp_path / "metrics.jsonl", 3)
    (tmp_path / "final").mkdir()
    (tmp_path / "final" / "config.json").write_text("{}")
    with pytest.raises(InputError, match="safetensors"):
        results.check_model(tmp_path / "final")
    (tmp_path / "final" / "model.safetensors").write_text("")
    results.check_model(tmp_path / "final")
