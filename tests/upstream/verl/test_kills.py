"""kill -9 of verl's driver, a worker and the raylet: the next attempt continues as if it had not happened."""

import pytest

from launch.errors import LaunchError
from tests.upstream.verl.runs import Run, algorithm

pytestmark = [pytest.mark.upstream, pytest.mark.timeout(3000)]
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


def kill_after(step, is_victim, directory):
    """Return a function that kills a process once a checkpoint of the step exists."""
    killed = []

    def act(sessions):
        if last_checkpoint(directory) >= step and not killed:
            (victim,) = sessions.find(is_victim)
            victim.kill()
            killed.append(victim.pid)

    return act


def test_nothing_is_left_or_lost_when_a_process_is_killed(verl, tmp_path):
    undisturbed = verl.train(tmp_path / "undisturbed", 1, OVERRIDES)
    directory = tmp_path / "killed"
    for attempt, (step, is_victim) in enumerate(KILLS.items(), 1):
        with pytest.raises(LaunchError):
            verl.train(directory, 1, OVERRIDES, attempt, kill_after(step, is_victim, directory))
        assert step <= last_checkpoint(directory) < STEPS
        if attempt > 1:
            assert "Resuming from" in (Run(directory, attempt).logs / "worker_0.log").read_text()
    last = verl.train(directory, 1, OVERRIDES, attempt=len(KILLS) + 1)
    assert last_checkpoint(directory) == STEPS
    assert last.completions() == undisturbed.completions()
    assert last.shards(STEPS) == undisturbed.shards(STEPS)
