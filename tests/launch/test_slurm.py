"""Batch scripts through a real Slurm; tests/e2e/test_mindrlhf_nodes.py requeues a job."""

import subprocess

import pytest

from launch.errors import LaunchError, ProcessFailed
from launch.nodes import slurm
from tests.launch.cluster import cluster
from tests.launch.launchers import local_launcher, make_start, run_job
from tests.processes import wait_until

pytestmark = pytest.mark.slurm
WORKER = """
import os, sys, time
if os.environ["MS_ROLE"] == "MS_WORKER":
    print("worker", os.environ["RANK_ID"], "job", os.environ["SLURM_JOB_ID"], flush=True)
    if "stay" in sys.argv:
        time.sleep(300)
    if "fail" in sys.argv:
        raise RuntimeError("out of memory")
"""


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    with cluster(tmp_path_factory.mktemp("slurm")):
        yield


def run(directory, *arguments, **changes):
    launcher = local_launcher(name="slurm", grace_s=3, **changes)
    return run_job(directory, make_start(directory, WORKER, *arguments), launcher)


def jobs():
    return subprocess.run(["squeue", "-h"], capture_output=True, text=True).stdout


def test_a_worker_that_fails_fails_the_run(running, tmp_path):
    with pytest.raises(ProcessFailed) as failure:
        run(tmp_path, "fail")
    assert any("out of memory" in line for line in failure.value.tail)


def test_a_run_that_is_stopped_cancels_its_job(running, tmp_path):
    with pytest.raises(LaunchError, match="not finished after"):
        run(tmp_path, "stay", timeout_s=6.0)
    wait_until(lambda: not jobs(), 120, describe=jobs)  # Slurm gives its processes time to end


def test_a_job_of_an_earlier_attempt_is_cancelled_by_the_next(running, tmp_path, monkeypatch):
    """Another store may have a job for the same artifact, whose name differs."""
    monkeypatch.setenv("SBATCH_JOB_NAME", "mine")
    directories = tmp_path / "a store" / "grpo-01", tmp_path / "another" / "grpo-01"
    numbers = []
    for directory, when in zip(directories, ("--begin=now", "--hold"), strict=True):
        (directory / "launch").mkdir(parents=True)
        name = slurm.job_name(directory / "launch")
        left = ["sbatch", "--parsable", f"--job-name={name}", when, "--output=/dev/null", "--wrap=sleep 300"]
        numbers.append(subprocess.run(left, capture_output=True, text=True, check=True).stdout.strip())
    logs = run(directories[0])
    assert numbers[0] not in jobs() and numbers[1] in jobs()
    subprocess.run(["scancel", numbers[1]], check=True)
    wait_until(lambda: not jobs(), 120, describe=jobs)
    for rank in (0, 1):
        assert f"worker {rank} job" in (logs / f"worker_{rank}.log").read_text()
    assert ": COMPLETED" in (logs / "start.log").read_text()
