"""kill -9 of verl's driver, a worker and the raylet: the next attempt continues as if it had not happened."""

import contextlib
import hashlib
import json
import os
import subprocess
import time
import zipfile

import psutil
import pytest

from tests.processes import in_sessions, living, wait_until
from tests.upstream.verl.product import command, grpoflow, tiny_run

pytestmark = [pytest.mark.upstream, pytest.mark.timeout(5400)]
STEPS = 8
KILLS = {
    1: lambda line: line[0].startswith("ray::WorkerDict"),
    3: lambda line: line[1:3] == ["-m", "verl.trainer.main_ppo"],
    5: lambda line: line[0].endswith("/raylet"),
}
"""Step after which a process is killed, and the test of its command line."""


def last_checkpoint(directory):
    tracker = directory / "checkpoints" / "latest_checkpointed_iteration.txt"
    return int(tracker.read_text() or 0) if tracker.exists() else 0


def last_step(metrics):
    """Return the last step in a file of metrics. verl logs a step after it has saved the checkpoint."""
    lines = metrics.read_text().split("\n")[:-1] if metrics.exists() else []
    return json.loads(lines[-1])["step"] if lines else 0


def tensors_digest(file):
    """Return the digest of all tensors of a file of torch.save; pickled objects differ between runs."""
    digest = hashlib.sha256()
    with zipfile.ZipFile(file) as archive:
        tensors = sorted(name for name in archive.namelist() if "/data/" in name)
        assert tensors
        for name in tensors:
            digest.update(archive.read(name))
    return digest.hexdigest()


def kill(grpo, is_victim):
    """Kill a process of a stage; return the sessions of its job, none if it has no such process."""
    sessions = set()
    for pid in living(grpo):
        with contextlib.suppress(ProcessLookupError):
            sessions.add(os.getsid(pid))
    for process in in_sessions(sessions):
        with contextlib.suppress(psutil.Error):
            if (line := process.cmdline()) and is_victim(line):
                process.kill()
                return sessions
    return set()


def run_until_killed(directory, overrides, step, is_victim):
    """Start a run of the product, kill a process after a step is recorded, and wait for its end."""
    with (directory / "run.log").open("a") as log:
        running = subprocess.Popen(command("run", *overrides), stdout=log, stderr=log, cwd=directory)
    sessions = set()
    while running.poll() is None:
        for grpo in (directory / "store" / ".work").glob("grpo-*"):
            if not sessions and last_step(grpo / "metrics.jsonl") >= step:
                sessions = kill(grpo, is_victim)
        time.sleep(0.2)
    assert running.returncode == 1, (directory / "run.log").read_text()[-3000:]
    assert step <= last_checkpoint(grpo) < STEPS
    assert sessions
    wait_until(lambda: not in_sessions(sessions))


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
