"""Batch scripts through a real Slurm, and what they say."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from launch import engine, slurm
from launch.errors import ProcessFailed, ProcessTimedOut
from launch.scripts import EngineStart
from tests.launch.cluster import cluster
from tests.launch.launchers import local_launcher

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
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with cluster(tmp_path_factory.mktemp("slurm")):
        yield


def run(directory: Path, *arguments: str, **changes: object) -> Path:
    (directory / "worker.py").write_text(WORKER)
    begun = EngineStart(
        program=(str(directory / "worker.py"), *arguments), workers=2, python=sys.executable, env={},
        python_path=(), env_scripts=(), container=(), directory=str(directory / "run"),
    )  # fmt: skip
    logs = directory / "logs"
    logs.mkdir()
    engine.run(
        begun, job=str(directory), directory=directory / "launch", logs=logs,
        launcher=local_launcher(name="slurm", grace_s=3, **changes),
        on_poll=lambda: None, silent_s=lambda: 0.0, silence_timeout_s=None,
    )  # fmt: skip
    return logs


def jobs() -> str:
    return subprocess.run(["squeue", "-h"], capture_output=True, text=True).stdout


def test_the_script_asks_for_nodes_and_forbids_a_second_start(tmp_path: Path) -> None:
    text = slurm.batch_script(4, tmp_path, tmp_path / "logs", ["--partition=npu"])
    assert "#SBATCH --nodes=4\n#SBATCH --ntasks-per-node=1\n#SBATCH --no-requeue\n" in text
    assert "#SBATCH --partition=npu\n" in text
    assert subprocess.run(["bash", "-n"], input=text, text=True).returncode == 0


@pytest.mark.slurm
def test_a_job_runs_to_its_end(running: None, tmp_path: Path) -> None:
    logs = run(tmp_path)
    for rank in (0, 1):
        assert f"worker {rank} job" in (logs / f"worker_{rank}.log").read_text()
    assert ": COMPLETED" in (logs / "start.log").read_text()


@pytest.mark.slurm
def test_a_worker_that_fails_fails_the_run(running: None, tmp_path: Path) -> None:
    with pytest.raises(ProcessFailed) as failure:
        run(tmp_path, "fail")
    assert any("out of memory" in line for line in failure.value.tail)


@pytest.mark.slurm
def test_a_run_that_is_stopped_cancels_its_job(running: None, tmp_path: Path) -> None:
    with pytest.raises(ProcessTimedOut):
        run(tmp_path, "stay", timeout_s=8.0)
    deadline = time.monotonic() + 40
    while jobs():  # Slurm gives its processes time to end
        assert time.monotonic() < deadline, jobs()
        time.sleep(0.5)


@pytest.mark.slurm
def test_a_job_that_nobody_ended_is_ended_by_the_next_attempt(running: None, tmp_path: Path) -> None:
    (tmp_path / "launch").mkdir()
    name = slurm.job_name(tmp_path / "launch")
    left = ["sbatch", "--parsable", f"--job-name={name}", "--output=/dev/null", "--wrap=sleep 300"]
    number = subprocess.run(left, capture_output=True, text=True, check=True).stdout.strip()
    run(tmp_path)
    assert number not in jobs()
