"""Runs that go on without a terminal (`--detach`): their start, their output, and how they are stopped.

The command starts itself again in a session of its own, which neither a closed terminal nor a lost connection
ends. The new process reports through a pipe that its run has begun; if it ends before that, its output and
exit code are the command's.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from pipeline.errors import StoreError, store_errors
from pipeline.store import history
from pipeline.store.attempt import slot_directories
from pipeline.store.history import Record
from stages.own_packages import START

PIPE = "GRPOFLOW_DETACHED"
"""Environment variable with the descriptor through which a detached process reports its run."""
DIRECTORY = ".runs"
"""Directory of the store with the output of detached runs, as ID.log."""
POLL_S = 0.1
KILL_S = 60.0
"""Time for a killed process's lease to be released: the kernel frees its memory first."""


def start(arguments: Sequence[str]) -> tuple[str | None, str, int]:
    """Run a command line of grpoflow without a terminal, until its run has begun.

    Return (id, "", 0), or (None, output, exit code) if it ended before.
    """
    import subprocess  # imported late: a run with nothing to do starts no process
    import tempfile

    reader, writer = os.pipe()
    with tempfile.TemporaryFile() as output, open(os.devnull, "rb") as nothing:
        process = subprocess.Popen(
            [sys.executable, START, "pipeline.cli", *arguments],
            stdin=nothing,
            stdout=output,
            stderr=output,
            pass_fds=[writer],
            start_new_session=True,
            env={**os.environ, PIPE: str(writer)},
        )
        os.close(writer)
        with os.fdopen(reader, encoding="utf-8") as pipe:
            run = pipe.read().strip()
        if run:
            return run, "", 0
        code = process.wait()
        output.seek(0)
        return None, output.read().decode("utf-8", "replace"), code if code >= 0 else 128 - code


def has_begun(root: Path, run: str) -> None:
    """Report the run of this process if it is detached, and write its output to the store from now on."""
    descriptor = os.environ.pop(PIPE, "")
    if not descriptor.isdecimal():
        return
    log = log_file(root, run)
    with store_errors(root):
        log.parent.mkdir(exist_ok=True)
        file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o664)
    sys.stdout.flush()
    sys.stderr.flush()
    written = os.pread(1, 1 << 20, 0)  # warnings of the plan
    os.write(file, written)
    for stream in (1, 2):
        os.dup2(file, stream)
    os.close(file)
    os.write(int(descriptor), run.encode())
    os.close(int(descriptor))


def log_file(root: Path, run: str) -> Path:
    """Return the file with the output of a detached run or sweep."""
    return root / DIRECTORY / f"{run}.log"


def this_process() -> dict[str, Any]:
    """Return what identifies this process: host, process id, and when it began, in clock ticks."""
    return {"host": socket.gethostname(), "pid": os.getpid(), "began": _began(os.getpid())}


def _began(pid: int) -> int | None:
    """Return when a process began, in clock ticks since the machine did; None if it does not exist."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
    except OSError:
        return None
    state, *fields = stat.rpartition(")")[2].split()
    return None if state == "Z" else int(fields[18])


def stop(root: Path, run: Record, grace_s: float) -> bool:
    """End the process of a running run; return True if it had to be killed, which recorded nothing.

    SIGTERM lets it end its stage and record that; after `grace_s` it and its stages' processes are killed.

    Raises:
        StoreError: the process is on another machine, or unknown.
    """
    process = run.process
    pid, host = process.get("pid"), process.get("host")
    if not isinstance(pid, int) or pid <= 1:
        raise StoreError(f"run {run.id}: the store does not know its process; end it where it was started")
    if host != socket.gethostname():
        raise StoreError(f"run {run.id}: runs on {host}; type there: grpoflow stop {run.id} store={root}")
    if _signal(run, pid, signal.SIGTERM):
        if _wait(run, pid, grace_s):
            return False
        _signal(run, pid, signal.SIGKILL)
    from launch.process.tree import end_job  # imported late: psutil takes 20 ms

    for artifact in run.artifacts.values():
        for work in slot_directories(root / ".work", artifact):
            end_job(str(work), grace_s=0.0)
    if not _wait(run, pid, KILL_S):
        raise StoreError(f"run {run.id}: process {pid} does not end {KILL_S:.0f} s after SIGKILL")
    return True


def _signal(run: Record, pid: int, number: signal.Signals) -> bool:
    """Send a signal to the process of a run; return False if it has ended."""
    if _began(pid) != run.process.get("began"):
        return False
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    except PermissionError as error:
        remedy = "ask its owner to stop it"
        raise StoreError(f"run {run.id}: process {pid} belongs to another user; {remedy}") from error
    return True


def _wait(run: Record, pid: int, seconds: float) -> bool:
    """Wait until the process of a run has ended; return False if it has not."""
    deadline = time.monotonic() + seconds
    while _began(pid) == run.process.get("began"):
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL_S)
    return True


def find(root: Path, selector: str) -> list[Record]:
    """Return the run that is selected, or the running points of a sweep by the sweep's id."""
    points = of_sweep(history.runs(root).values(), selector)
    return [run for run in points if run.state == "running"] or [history.find(root, selector)]


def of_sweep(runs: Iterable[Record], sweep: str) -> list[Record]:
    """Return the runs of a sweep's points."""
    return [run for run in runs if run.sweep and run.sweep == sweep]
