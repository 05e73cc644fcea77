import socket
from pathlib import Path

import psutil
import pytest

from launch import job, msrun
from launch.errors import LaunchError, ProcessFailed
from tests.launch.launchers import local_launcher

LOCAL = local_launcher(timeout_s=120, grace_s=2)


def test_a_port_in_use_is_an_error_with_a_remedy() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(LaunchError, match=rf"launcher.master_port={port}: cannot be bound .* null"):
            msrun.find_port("127.0.0.1", port)
    assert msrun.find_port("127.0.0.1", None) > 1023


def test_msrun_missing_is_told(tmp_path: Path) -> None:
    with pytest.raises(LaunchError, match="not found; install mindspore"):
        msrun.command(
            ["-c", ""],
            python=tmp_path / "python",
            workers=2,
            master_addr="127.0.0.1",
            master_port=2000,
            log_dir=tmp_path,
        )


def test_msrun_leaves_the_cores_to_its_workers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its own waiting loop would take a whole core."""
    monkeypatch.delenv("PYTHONPATH")  # which makes msrun rest in all other tests
    program = tmp_path / "worker.py"
    program.write_text("import time; time.sleep(6)")
    used = []

    def look() -> None:
        for process in psutil.process_iter(["cmdline"]):
            if str(tmp_path) in (process.info["cmdline"] or []) or any(
                f"--log_dir={tmp_path}" in part for part in process.info["cmdline"] or []
            ):
                used.append((process.pid, process.cpu_times().user + process.cpu_times().system))

    job.run([str(program)], workers=2, job=str(tmp_path), log_dir=tmp_path, launcher=LOCAL, on_poll=look)
    waiting = used[-1][1] - used[len(used) * 3 // 4][1]  # the last quarter: imports are over
    assert waiting < 0.5, f"{waiting:.1f} s of CPU in the last of 6 s of waiting"


# A worker of real msrun, without MindSpore: msrun itself only needs its children to end.
WORKER = """
import os, sys
role, rank = os.environ["MS_ROLE"], os.environ.get("RANK_ID")
print("hello from", role, rank, os.environ["MS_SCHED_PORT"])
if role == "MS_WORKER" and rank == sys.argv[1]:
    sys.exit("error: worker told to fail")
"""


def test_real_msrun_starts_workers(tmp_path: Path) -> None:
    program = tmp_path / "worker.py"
    program.write_text(WORKER)
    job.run([str(program), "none"], workers=2, job=str(tmp_path), log_dir=tmp_path, launcher=LOCAL)
    for rank in (0, 1):
        assert f"hello from MS_WORKER {rank}" in (tmp_path / f"worker_{rank}.log").read_text()


def test_the_failing_worker_is_shown_first(tmp_path: Path) -> None:
    program = tmp_path / "worker.py"
    program.write_text(WORKER)
    with pytest.raises(ProcessFailed) as failure:
        job.run([str(program), "1"], workers=2, job=str(tmp_path), log_dir=tmp_path, launcher=LOCAL)
    assert failure.value.log.name == "worker_1.log"
    assert failure.value.tail[-1] == "error: worker told to fail"
