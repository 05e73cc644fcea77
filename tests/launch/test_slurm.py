"""Batch scripts through a real Slurm, and what they say."""

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from launch.errors import LaunchError, ProcessFailed
from launch.nodes import slurm
from tests.launch.cluster import cluster
from tests.launch.launchers import local_launcher, make_start, run_job
from tests.processes import wait_until

WORKER = """
import os, sys, time
if os.environ["MS_ROLE"] == "MS_WORKER":
    print("worker", os.environ["RANK_ID"], "job", os.environ["SLURM_JOB_ID"], flush=True)
    if "stay" in sys.argv:
        time.sleep(300)
    if "again" in sys.argv:
        print("goes on", flush=True)
    if "fail" in sys.argv:
        raise RuntimeError("out of memory")
"""


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    with cluster(tmp_path_factory.mktemp("slurm")):
        yield


def run(directory, *arguments, on_poll=lambda: None, **changes):
    decides = directory / "decides.py"
    decides.write_text(f"import os, sys; sys.exit(0 if os.path.exists({str(directory / 'saved')!r}) else 3)")
    start = make_start(directory, WORKER, *arguments, resumable=(str(decides),))
    start = replace(start, again=(start.program[0], "again"))
    return run_job(directory, start, local_launcher(name="slurm", grace_s=3, **changes), on_poll)


def jobs():
    return subprocess.run(["squeue", "-h"], capture_output=True, text=True).stdout


@pytest.mark.long  # in the default suite, what decides it: test_scripts.py
@pytest.mark.slurm
def test_a_requeued_job_resumes(running, tmp_path):
    """After preemption the job waits in the queue, and processes of the first start are killed."""
    logs = tmp_path / "logs"

    def requeue():
        texts = [log.read_text() for log in logs.glob("worker_*.log")]
        begun = [text for text in texts if "worker" in text and text.endswith("\n")]
        if not (tmp_path / "saved").exists() and len(begun) == 2:
            (tmp_path / "saved").touch()
            (number,) = {text.split()[3] for text in texts}
            subprocess.run(["scontrol", "requeue", number], check=True)

    run(tmp_path, "stay", on_poll=requeue)
    output = [line.rpartition(": ")[2] for line in (logs / "start.log").read_text().splitlines()]
    assert "PENDING" in output[1:] and output[-1] == "COMPLETED"
    for rank in (0, 1):
        assert "goes on" in (logs / f"worker_{rank}.log").read_text()
        (earlier,) = (logs / "earlier").glob(f"worker_{rank}-*.log")
        assert f"worker {rank} job" in earlier.read_text()
    assert not list((tmp_path / "launch").glob(".shared-*"))
    left = [*Path("/proc").glob("[0-9]*/environ")]
    mark = f"GRPOFLOW_NODE={tmp_path} 0"
    assert not subprocess.run(["grep", "-lzF", mark, *left], capture_output=True, text=True).stdout


@pytest.mark.slurm
def test_a_worker_that_fails_fails_the_run(running, tmp_path):
    with pytest.raises(ProcessFailed) as failure:
        run(tmp_path, "fail")
    assert any("out of memory" in line for line in failure.value.tail)


@pytest.mark.slurm
def test_a_run_that_is_stopped_cancels_its_job(running, tmp_path):
    with pytest.raises(LaunchError, match="not finished after"):
        run(tmp_path, "stay", timeout_s=6.0)
    wait_until(lambda: not jobs(), 40, describe=jobs)  # Slurm gives its processes time to end


@pytest.mark.slurm
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
    wait_until(lambda: not jobs(), 40, describe=jobs)
    for rank in (0, 1):
        assert f"worker {rank} job" in (logs / f"worker_{rank}.log").read_text()
    assert ": COMPLETED" in (logs / "start.log").read_text()
