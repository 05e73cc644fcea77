"""States to resume from, metrics, completions and the proof of a finished run, without AReaL."""

import importlib
import json
import subprocess
import sys
from types import ModuleType, SimpleNamespace

import pytest

from stages.base.errors import InputError
from stages.engines.areal import results
from stages.engines.areal.job import PROGRAMS


@pytest.fixture
def driver(monkeypatch):
    """The driver's module, with stand-ins for what it imports from AReaL."""
    names = ("areal", "areal.api", "areal.api.cli_args", "areal.utils", "areal.infra", "areal.infra.rpc")
    for name in (*names, "areal.infra.rpc.rtensor", "areal.infra.scheduler", "areal.infra.scheduler.local"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    sys.modules["areal"].PPOTrainer = sys.modules["areal.infra.rpc.rtensor"].get_backend = None
    sys.modules["areal.api"].SaveLoadMeta = SimpleNamespace
    sys.modules["areal.api"].cli_args = sys.modules["areal.api.cli_args"]
    sys.modules["areal.api.cli_args"].GRPOConfig = sys.modules["areal.api.cli_args"].load_expr_config = None
    sys.modules["areal.infra.scheduler.local"].LocalScheduler = None
    sys.modules["areal.utils"].network = SimpleNamespace()
    monkeypatch.syspath_prepend(PROGRAMS)
    for name in ("batches", "driver"):
        monkeypatch.delitem(sys.modules, f"grpoflow_areal.{name}", raising=False)
    return importlib.import_module("grpoflow_areal.driver")


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
    states = driver.States(handler, checkpoints, slot)
    for step in steps:
        handler.dump(None, SimpleNamespace(global_step=step))
        states.name()


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


def test_a_state_is_named_after_the_metrics_of_its_step(driver, tmp_path):
    handler = Handler(every=1)
    states = driver.States(handler, tmp_path, "a")
    handler.dump(None, SimpleNamespace(global_step=0))
    states.name()
    handler.dump(None, SimpleNamespace(global_step=1))  # a kill now loses this step
    assert results.read_state(tmp_path) == ("a", 1)


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


class Ended(BaseException):
    """Raised in place of the end of the process."""


def worker(identity, log, command):
    process = subprocess.Popen([sys.executable, "-c", command])
    return SimpleNamespace(worker=SimpleNamespace(id=identity), log_file=str(log), process=process)


@pytest.mark.parametrize(
    ("command", "is_ready", "message"),
    [
        ("", True, "AReaL's worker actor/0 has ended"),
        ("import time; time.sleep(60)", False, "not ready after engine.start_timeout_s=0 seconds"),
    ],
)
def test_a_worker_that_ends_or_is_late_ends_the_run(
    driver, tmp_path, monkeypatch, capfd, command, is_ready, message
):
    class Scheduler:
        """AReaL's LocalScheduler as far as the driver uses it."""

        def __init__(self, exp_config, startup_timeout=30.0):
            self.startup_timeout, self._workers = startup_timeout, {}

        @staticmethod
        def _wait_for_fork_ready(port, timeout=60.0):
            return timeout

    def end(code):
        raise Ended(code)

    monkeypatch.setattr(driver, "LocalScheduler", Scheduler)
    monkeypatch.setattr(driver, "POLL_S", 0.01)
    monkeypatch.setattr(driver.os, "_exit", end)
    workers = driver.Workers(0.4)
    scheduler = Scheduler(exp_config=None)
    assert scheduler.startup_timeout == 0.4 and scheduler._wait_for_fork_ready(1) == 0.4
    (tmp_path / "actor.log").write_text("RuntimeError: no memory\n")
    started = worker("actor/0", tmp_path / "actor.log", command)
    forked = SimpleNamespace(worker=SimpleNamespace(id="ref/0"), log_file="", process=None)
    scheduler._workers = {"actor": [started], "ref": [forked]}
    if is_ready:
        workers.ready.set()
    with pytest.raises(Ended, match="1"):
        workers.watch()
    started.process.kill()
    errors = capfd.readouterr().err
    assert message in errors
    assert ("no memory" in errors) == is_ready
    workers.done.set()
    workers.watch()  # the end of the run is no error


def test_each_step_has_its_rows_in_an_order_that_the_seed_decides(driver, tmp_path):
    data = tmp_path / "train.jsonl"
    data.write_text("".join(json.dumps({"row": row}) + "\n" for row in range(5)))
    task = {"data": str(data), "steps": 4, "prompts_per_step": 3, "seed": 1}
    rows = [driver.Rows(task)[index]["row"] for index in range(12)]
    assert len(driver.Rows(task)) == 12
    assert sorted(rows[:5]) == sorted(rows[5:10]) == list(range(5)) and rows[:5] != rows[5:10]
    assert rows == [driver.Rows(task)[index]["row"] for index in range(12)]
    assert rows != [driver.Rows(task | {"seed": 2})[index]["row"] for index in range(12)]


def test_a_resumed_run_begins_with_the_rows_of_its_first_step(driver, tmp_path):
    data = tmp_path / "train.jsonl"
    data.write_text("".join(json.dumps({"row": row}) + "\n" for row in range(12)))
    task = {"data": str(data), "steps": 4, "prompts_per_step": 3, "seed": 1}
    rows = driver.Rows(task)
    every = list(driver.Batches(rows, task, 0))
    assert [len(step) for step in every] == [3] * 4
    assert [row for step in every for row in step] == [rows[i] for i in range(12)]
    assert list(driver.Batches(rows, task, 2)) == every[2:]
    assert len(driver.Batches(rows, task, 2)) == 4


def test_a_step_is_measured_and_logged_by_what_it_trains_on(driver, tmp_path):
    from grpoflow_areal.batches import name

    episodes, completions = tmp_path / "episodes", tmp_path / "completions.jsonl"
    episodes.mkdir()
    first = [([1, 5, 9], [-1, 1, 1], 1.0), ([1, 5, 6, 7], [-1, 0, 0, 1], 0.0)]  # 9 ends a completion
    second = [([2, 9], [-1, 1], 0.5), ([2, 4, 9], [-1, 1, 1], 0.5)]
    for number, (ids, versions, _) in enumerate([*first, *second, ([3], [1], 0.0)]):
        (episodes / name(ids, versions)).write_text(json.dumps({"completion": str(number)}))
    task = {"steps": 4, "prompts_per_step": 2, "end_ids": [9], "staleness": 2, "episodes": str(episodes)}
    task |= {"completions": str(completions), "logged_completions": 3, "completions_every": 1}
    batches = driver.Batches([], task, 1)
    batches._done += 1
    batches.look([first, second])
    assert batches.metrics == {
        "grpoflow/tokens": 8, "grpoflow/completions": 4, "grpoflow/completion_length": 2.0,
        "grpoflow/completion_length_max": 3, "grpoflow/completion_cut_share": 0.25,
        "grpoflow/reward_std": pytest.approx(0.125**0.5), "grpoflow/zero_variance_share": 0.5,
        "grpoflow/staleness": 0.25, "grpoflow/staleness_max": 1, "grpoflow/staleness_share/0": 0.75,
        "grpoflow/staleness_share/1": 0.25, "grpoflow/staleness_share/2": 0.0,
    }  # fmt: skip
    rows = [json.loads(line) for line in completions.read_text().splitlines()]
    assert rows == [{"step": 2, "completion": str(number)} for number in range(3)]
    assert len(list(episodes.iterdir())) == 1  # of a completion that waits


def test_metrics_have_grpoflows_names():
    data = {
        "ppo_actor/task_reward/avg": 0.5, "ppo_actor/prompt_len/avg": 20.0, "timeperf/rollout": 6.0,
        "timeperf/train_step": 2.0, "timeperf/train_step__count": 1.0, "rollout/part_number": 0.25,
        "grpoflow/tokens": 40.0, "grpoflow/completions": 4.0, "grpoflow/completion_length": 10.0,
        "grpoflow/staleness_share/1": 0.5, "other": 1.0,
    }  # fmt: skip
    row = results.read_metrics(json.dumps({"step": 3, "data": data}))
    assert row == {
        "step": 3, "reward": 0.5, "prompt_length": 20.0, "completion_length": 10.0, "rollout_s": 6.0,
        "train_s": 2.0, "step_s": 8.0, "wait_share": 0.75, "tokens_per_s": 5.0, "completions_per_s": 0.5,
        "train_tokens_per_s": 20.0, "staleness_share/1": 0.5, "reward/number": 0.25,
    }  # fmt: skip


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
