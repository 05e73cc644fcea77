import sys
from pathlib import Path

import pytest

from launch.errors import ProcessFailed
from launch.process import job
from launch.process.paced_msrun import PacedPopen
from tests.launch.launchers import local_launcher

PYTHON = Path(sys.executable)
LOCAL = local_launcher(timeout_s=120, grace_s=2)


# A worker of real msrun, without MindSpore: msrun itself only needs its children to end.
WORKER = """
import os, sys
role, rank = os.environ["MS_ROLE"], os.environ.get("RANK_ID")
print("hello from", role, rank, os.environ["MS_SCHED_PORT"])
if role == "MS_WORKER" and rank == sys.argv[1]:
    sys.exit("error: worker told to fail")
"""


def test_the_failing_worker_is_shown_first(tmp_path):
    program = tmp_path / "worker.py"
    program.write_text(WORKER)
    with pytest.raises(ProcessFailed) as failure:
        job.run([str(program), "1"], workers=2, job=str(tmp_path), log_dir=tmp_path, launcher=LOCAL)
    assert failure.value.log.name == "worker_1.log"
    assert failure.value.tail[-1] == "error: worker told to fail"


def test_a_scheduler_without_workers_is_ended(tmp_path: Path) -> None:
    """MindSpore's looks every five seconds whether its workers have left."""
    program = tmp_path / "worker.py"
    program.write_text("import os, time; time.sleep(600 * (os.environ['MS_ROLE'] == 'MS_SCHED'))")
    job.run([str(program)], workers=2, job=str(tmp_path), log_dir=tmp_path, launcher=LOCAL)


def test_a_scheduler_of_remote_workers_ends_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PacedPopen, "workers", 0)
    monkeypatch.setenv("MS_WORKER_NUM", "2")
    monkeypatch.setenv("MS_ROLE", "MS_SCHED")
    scheduler = PacedPopen(["python", "-c", "import time; time.sleep(0.5); raise SystemExit(7)"])
    monkeypatch.setenv("MS_ROLE", "MS_WORKER")
    assert PacedPopen(["python", "-c", ""]).wait() == 0
    assert scheduler.wait() == 7
