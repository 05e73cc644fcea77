"""Child processes: started in a session of their own, watched, and ended to the last grandchild.

Every child carries the environment variable GRPOFLOW_JOB. A worker that msrun moved into its own
session, or that outlived a killed parent, is still found by it.
"""

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from launch.errors import ProcessFailed, ProcessTimedOut

JOB_VARIABLE = "GRPOFLOW_JOB"
POLL_S = 0.1
MEMORY_SAMPLE_S = 0.25
TAIL_LINES = 20


@dataclass(frozen=True)
class Outcome:
    """How a child ended."""

    started: float
    """Unix time, seconds."""
    ended: float
    peak_memory_gib: float
    """Highest sum of resident memory over the process tree, sampled four times a second."""


def run(
    command: Sequence[str],
    *,
    job: str,
    log: Path,
    env: Mapping[str, str] | None = None,
    timeout_s: float | None = None,
    grace_s: float = 8.0,
    on_poll: Callable[[], None] = lambda: None,
) -> Outcome:
    """Run `command` to its end, with stdout and stderr in `log`.

    Args:
        command: program and arguments; no shell is involved.
        job: name of the job, unique per artifact, carried by every process of the tree.
        log: file that receives the output; its directory must exist.
        env: the whole environment of the child; None is this process's own.
        timeout_s: longest wall time; None is no limit.
        grace_s: seconds between SIGTERM and SIGKILL when the child has to be stopped.
        on_poll: called ten times a second, for example to show the child's progress.

    Raises:
        ProcessFailed: on any exit code but 0.
        ProcessTimedOut: after `timeout_s`; the tree is ended.
        LaunchError: via FileNotFoundError when the program does not exist.
    """
    environment = {**(os.environ if env is None else env), JOB_VARIABLE: job}
    started, began = time.time(), time.monotonic()
    deadline = None if timeout_s is None else began + timeout_s
    child: subprocess.Popen[bytes] | None = None
    peak = 0.0
    next_sample = time.monotonic()
    try:
        with log.open("ab") as output:
            child = subprocess.Popen(
                list(command),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=environment,
                start_new_session=True,
            )
        process = psutil.Process(child.pid)
        while child.poll() is None:
            if deadline is not None and time.monotonic() > deadline:
                raise ProcessTimedOut(timeout_s or 0.0, log)
            if time.monotonic() >= next_sample:
                peak = max(peak, _tree_memory_gib(process))
                next_sample = time.monotonic() + MEMORY_SAMPLE_S
            on_poll()
            time.sleep(POLL_S)
    finally:  # an interrupt ends here too, even while the child starts: nothing of the tree may outlive it
        try:
            end_job(job, grace_s=grace_s if child is None or child.poll() is None else 0.0)
        except KeyboardInterrupt:  # asked twice: no more grace
            end_job(job, grace_s=0.0)
            raise
        if child is not None:
            child.wait()
    if child.returncode != 0:
        last = tail(log)
        with contextlib.suppress(OSError), log.open("a", encoding="utf-8") as output:
            output.write(
                f"\n{how_it_ended(child.returncode)}\n"
            )  # a process that is killed can't say so itself
        raise ProcessFailed(child.returncode, log, last)
    # not the clock on the wall, which somebody may set meanwhile
    return Outcome(started, started + time.monotonic() - began, peak)


def how_it_ended(exit_code: int) -> str:
    """The line that a failed child's log ends with; launch.diagnose.failures knows it."""
    if exit_code >= 0:
        return f"grpoflow: ended with exit code {exit_code}"
    return f"grpoflow: ended by signal {-exit_code} ({signal.Signals(-exit_code).name})"


def end_job(job: str, grace_s: float) -> list[int]:
    """End every process of this machine that carries `job`: SIGTERM, then SIGKILL after `grace_s`.

    Returns:
        The ids of the processes that were ended.
    """
    living = _processes_of(job)
    ended = [process.pid for process in living]
    if living and grace_s > 0:
        _signal(living, signal.SIGTERM)
        psutil.wait_procs(living, timeout=grace_s)
        living = _processes_of(job)
    while living:  # a fork during a scan is caught by the next one
        _signal(living, signal.SIGKILL)
        psutil.wait_procs(living, timeout=5)
        living = _processes_of(job)
    return ended


def tail(log: Path, lines: int = TAIL_LINES) -> list[str]:
    """The last lines of a log; reads at most 64 KiB, replaces what is not UTF-8."""
    if not log.exists():
        return []
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - 65536))
        return file.read().decode("utf-8", errors="replace").splitlines()[-lines:]


def _processes_of(job: str) -> list[psutil.Process]:
    """Who carries the job's name, and who shares a session of theirs: Ray's processes overwrite the name.

    Theirs is a session whose leader carries the name, or whose leader is gone.
    """
    alive: dict[int, tuple[int, psutil.Process]] = {}
    members: dict[int, psutil.Process] = {}
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, ProcessLookupError):
            if process.status() == psutil.STATUS_ZOMBIE:
                continue
            alive[process.pid] = (os.getsid(process.pid), process)
            if process.pid != os.getpid() and process.environ().get(JOB_VARIABLE) == job:
                members[process.pid] = process
    sessions = {alive[pid][0] for pid in members}
    theirs = {session for session in sessions if session in members or session not in alive}
    members.update({pid: process for pid, (session, process) in alive.items() if session in theirs})
    members.pop(os.getpid(), None)
    return list(members.values())


def _signal(processes: Sequence[psutil.Process], number: int) -> None:
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.send_signal(number)


def _tree_memory_gib(process: psutil.Process) -> float:
    total = 0
    with contextlib.suppress(psutil.Error):
        for member in [process, *process.children(recursive=True)]:
            with contextlib.suppress(psutil.Error):
                total += member.memory_info().rss
    return float(total) / 2**30
