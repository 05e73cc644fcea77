"""Process trees, identified by environment variables that all their processes inherit.

A watchdog process ends a tree if the starting process dies, even by SIGKILL. It waits for the end of a pipe
that only the starting process holds open, and is so small that it costs about 10 ms. Only when the pipe
closes does it import this module, which finds the tree.
"""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil

from launch.errors import LaunchError

JOB_VARIABLE = "GRPOFLOW_JOB"
"""Environment variable with the name of the job."""
STARTED_VARIABLE = "GRPOFLOW_STARTED"
"""Environment variable with a random text, carried by all processes of one start."""

UNKILLABLE_S = 300.0
"""Time after which a killed process counts as stuck in the kernel; freeing much memory takes long, too."""
WAIT = """
import os, sys
if not os.read(0, 1):
    sys.path[:0] = sys.argv[2:]
    from launch.process import tree
    tree.end_processes(tree.STARTED_VARIABLE, sys.argv[1])  # those of the next attempt at the same job go on
"""


def end_job(job: str, grace_s: float) -> list[int]:
    """End the processes of `job` by SIGTERM, and by SIGKILL after `grace_s`; return their ids."""
    return end_processes(JOB_VARIABLE, job, grace_s)


def end_processes(variable: str, value: str, grace_s: float = 0.0) -> list[int]:
    """End the processes with an environment variable; raise LaunchError if one survives SIGKILL."""
    running = _processes_of(variable, value)
    ended = [process.pid for process in running]
    if running and grace_s > 0:
        _signal(running, signal.SIGTERM, grace_s)
        running = _processes_of(variable, value)
    deadline = time.monotonic() + UNKILLABLE_S
    while running:  # processes forked during a scan are found by the next one
        if time.monotonic() > deadline:
            pids = ", ".join(str(process.pid) for process in running)
            rule = f"do not end {UNKILLABLE_S:.0f} s after SIGKILL: a device or a file system does not answer"
            raise LaunchError(f"processes {pids} {rule}; repair that, or restart the machine")
        _signal(running, signal.SIGKILL, wait_s=5)
        running = _processes_of(variable, value)
    return ended


def _processes_of(variable: str, value: str) -> list[psutil.Process]:
    """Return the processes with this environment variable, and those in their sessions.

    Ray's processes overwrite their environment. A session counts if its leader has the variable or has ended.
    """
    alive: dict[int, tuple[int, psutil.Process]] = {}
    members: dict[int, psutil.Process] = {}
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, ProcessLookupError):
            if process.status() == psutil.STATUS_ZOMBIE or process.pid == os.getpid():
                continue
            alive[process.pid] = (os.getsid(process.pid), process)
            if process.environ().get(variable) == value:
                members[process.pid] = process
    sessions = {alive[pid][0] for pid in members} - {os.getsid(0)}
    ended = {session for session in sessions if session in members or session not in alive}
    members.update({pid: process for pid, (session, process) in alive.items() if session in ended})
    return list(members.values())


def _signal(processes: Sequence[psutil.Process], number: int, wait_s: float) -> None:
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.send_signal(number)
    psutil.wait_procs(processes, timeout=wait_s)


def popen(command: Sequence[str], **options: Any) -> subprocess.Popen[bytes]:
    """Start a process; raise LaunchError if the system cannot start it."""
    try:
        return subprocess.Popen(command, **options)
    except OSError as error:
        raise LaunchError(f"{command[0]}: cannot be started: {error.strerror}") from error


@contextlib.contextmanager
def watchdog(environment: Mapping[str, str]) -> Iterator[str]:
    """Run a watchdog during a `with` statement; the value is the STARTED_VARIABLE of processes to end."""
    started = os.urandom(8).hex()
    paths = [str(Path(__file__).parents[2]), str(Path(psutil.__file__).parents[1])]
    process = popen(
        [sys.executable, "-I", "-S", "-c", WAIT, started, *paths],  # without the working directory's modules
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,  # a signal to the starting process's group must not end it
        env=dict(environment),
    )
    assert process.stdin is not None
    try:
        yield started
    finally:
        with contextlib.suppress(BrokenPipeError):  # the watchdog was ended from outside
            os.write(process.stdin.fileno(), b"x")
        process.stdin.close()
        process.wait()
