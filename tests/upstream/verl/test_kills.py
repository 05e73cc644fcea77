"""kill -9 of verl's driver, a worker and the raylet: the next attempt continues as if it had not happened."""

import json
import subprocess
import time

import pytest

from launch.errors import LaunchError
from tests.upstream.verl.product import command, grpoflow, tiny_run
from tests.upstream.verl.runs import Run, Sessions, algorithm, tensors_digest

pytestmark = [pytest.mark.upstream, pytest.mark.timeout(5400)]
STEPS = 8
KILLS = {
    1: lambda line: line[0].startswith("ray::WorkerDict"),
    3: lambda line: line[1:3] == ["-m", "verl.trainer.main_ppo"],
    5: lambda line: line[0].endswith("/raylet"),
}
"""Step after which a process is killed, and the test of its command line."""
OVERRIDES = {**algorithm("grpo"), "trainer.total_training_steps": STEPS}


def last_checkpoint(directory):
    tracker = directory / "checkpoints" / "latest_checkpointed_iteration.txt"
    return int(tracker.read_text() or 0) if tracker.exists() else 0


def last_step(metrics):
    """Return the last step in a file of metrics. verl logs a step after it has saved the checkpoint."""
    lines = metrics.read_text().split("\n")[:-1] if metrics.exists() else []
    return json.loads(lines[-1])["step"] if lines else 0


def kill_after(step, is_victim, metrics):
    """Return a function that kills a process once a step is recorded."""
    killed = []

    def act(sessions):
        if last_step(metrics) >= step and not killed:
            (victim,) = sessions.find(is_victim)
            victim.kill()
            killed.append(victim.pid)

    return act


def test_nothing_is_left_or_lost_when_a_process_is_killed(verl, tmp_path):
    undisturbed = verl.train(tmp_path / "undisturbed", 1, OVERRIDES)
    directory = tmp_path / "killed"
    for attempt, (step, is_victim) in enumerate(KILLS.items(), 1):
        with pytest.raises(LaunchError):
            metrics = Run(directory, attempt).logs / "metrics.jsonl"
            verl.train(directory, 1, OVERRIDES, attempt, kill_after(step, is_victim, metrics))
        assert step <= last_checkpoint(directory) < STEPS
        if attempt > 1:
            assert "Resuming from" in (Run(directory, attempt).logs / "worker_0.log").read_text()
    last = verl.train(directory, 1, OVERRIDES, attempt=len(KILLS) + 1)
    assert last_checkpoint(directory) == STEPS
    assert last.completions() == undisturbed.completions()
    assert last.shards(STEPS) == undisturbed.shards(STEPS)


def run_until_killed(directory, overrides, step, is_victim):
    """Start a run of the product, kill a process after a step is recorded, and wait for its end."""
    with (directory / "run.log").open("a") as log:
        running = subprocess.Popen(command("run", *overrides), stdout=log, stderr=log, cwd=directory)
    sessions = None
    while running.poll() is None:
        for grpo in (directory / "store" / ".work").glob("grpo-*"):
            if sessions is None and last_step(grpo / "metrics.jsonl") >= step:
                current = Sessions(str(grpo))
                current.look()  # before and after verl, the stage has processes with other sessions
                for victim in current.find(is_victim)[:1]:
                    victim.kill()
                    sessions = current
        time.sleep(0.2)
    assert running.returncode == 1, (directory / "run.log").read_text()[-3000:]
    assert step <= last_checkpoint(grpo) < STEPS
    sessions.assert_empty(20.0)


def results(directory):
    """Return what a run leaves: weights, completions, and metrics without times."""
    (grpo,) = (directory / "store" / "grpo").iterdir()
    (shard,) = grpo.glob("actor/model_*.pt")
    rows = [json.loads(line) for line in (grpo / "metrics.jsonl").read_text().splitlines()]
    timeless = [{key: value for key, value in row.items() if not key.endswith("_s")} for row in rows]
    completions = (grpo / "completions.jsonl").read_text().split("\n")
    return tensors_digest(shard), sorted(completions), timeless  # verl writes a step in any order


def test_a_run_of_the_product_loses_nothing_when_a_process_is_killed(interpreter, tmp_path):
    outcomes = {}
    for name, kills in {"undisturbed": {}, "killed": KILLS}.items():
        directory = tmp_path / name
        directory.mkdir()
        overrides = [
            *tiny_run(interpreter("verl"), directory), f"train.steps={STEPS}", "train.checkpoint_every=1",
            "train.logged_completions=32",
        ]  # fmt: skip
        for step, is_victim in kills.items():
            run_until_killed(directory, overrides, step, is_victim)
        done = grpoflow(directory, "run", "--until", "grpo", *overrides)
        assert done.returncode == 0, done.stderr[-3000:]
        outcomes[name] = results(directory)
    assert outcomes["killed"] == outcomes["undisturbed"]
    assert [row["step"] for row in outcomes["killed"][2]] == list(range(1, STEPS + 1))
    assert all(row["grad_norm"] > 0 for row in outcomes["killed"][2])
