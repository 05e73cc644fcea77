"""kill -9 of verl's driver, a worker and the raylet, and a job that Slurm queues again: nothing is lost."""

import contextlib
import hashlib
import json
import os
import subprocess
import time
import zipfile

import psutil
import pytest

from tests.launch.cluster import cluster
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


def overrides_for(interpreter, directory):
    """Return the overrides of a run with a checkpoint after each step, in a directory that is made."""
    directory.mkdir()
    return [
        *tiny_run(interpreter("verl"), directory), f"train.steps={STEPS}", "train.checkpoint_every=1",
        "train.logged_completions=32",
    ]  # fmt: skip


def finish(directory, *overrides):
    """Run the product to the end of grpo; return what it leaves."""
    done = grpoflow(directory, "run", "--until", "grpo", *overrides)
    assert done.returncode == 0, done.stderr[-3000:]
    return results(directory)


@pytest.fixture(scope="module")
def undisturbed(interpreter, tmp_path_factory):
    directory = tmp_path_factory.mktemp("undisturbed") / "run"
    result = finish(directory, *overrides_for(interpreter, directory))
    assert [row["step"] for row in result[2]] == list(range(1, STEPS + 1))
    assert all(row["grad_norm"] > 0 for row in result[2])
    return result


def test_a_run_of_the_product_loses_nothing_when_a_process_is_killed(undisturbed, interpreter, tmp_path):
    directory = tmp_path / "killed"
    overrides = overrides_for(interpreter, directory)
    for step, is_victim in KILLS.items():
        run_until_killed(directory, overrides, step, is_victim)
    assert finish(directory, *overrides) == undisturbed


def test_a_slurm_job_that_is_queued_again_loses_nothing(undisturbed, interpreter, tmp_path, tmp_path_factory):
    """As after preemption: Slurm ends the job's processes and starts it again."""
    directory = tmp_path / "queued_again"
    overrides = overrides_for(interpreter, directory)
    with cluster(tmp_path_factory.mktemp("slurm")):  # a short path: Slurm makes sockets below it
        line = command("run", "--until", "grpo", *overrides, "launcher=slurm", "launcher.stages=[grpo]")
        with (directory / "run.log").open("w") as log:
            waiting = subprocess.Popen(line, stdout=log, stderr=log, cwd=directory)
        try:
            wait_until(lambda: reached(directory, 3), 600, waiting)
            numbers = queue()
            assert len(numbers) == 1
            subprocess.run(["scontrol", "requeue", *numbers], check=True)
            assert waiting.wait(1200) == 0, (directory / "run.log").read_text()[-3000:]
        finally:
            waiting.kill()
            waiting.wait()
            subprocess.run(["scancel", *queue()], check=False)
    assert len(list(directory.glob("store/.logs/grpo-*/slurm-*.log"))) == 1
    (result,) = directory.glob("store/grpo/*/result.json")
    assert json.loads(result.read_text())["resumed_from"] >= 3
    assert results(directory) == undisturbed


def reached(directory, step):
    """Return True if a run's grpo has recorded a step."""
    return any(last_step(file) >= step for file in directory.glob("store/.work/grpo-*/metrics.jsonl"))


def queue():
    """Return the ids of all jobs in Slurm's queue."""
    return subprocess.run(
        ["squeue", "-h", "-o", "%i"], capture_output=True, text=True, check=True
    ).stdout.split()
