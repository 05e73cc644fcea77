"""Child processes: started in their own session, watched, and ended with all their descendants.

Every child carries the environment variable GRPOFLOW_JOB, which identifies a worker that msrun moved into
another session, or that outlived a killed parent. If this process is killed, a watchdog ends the tree.
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

from launch.diagnose.diagnosis import diagnose
from launch.errors import LaunchError, ProcessFailed
from launch.process.tree import JOB_VARIABLE, STARTED_VARIABLE, end_job, popen, watchdog

SCHEDULER_VARIABLES = (
    "MS_ROLE", "MS_WORKER_NUM", "MS_SERVER_NUM", "MS_SCHED_NUM", "MS_SCHED_HOST", "MS_SCHED_PORT",
    "MS_NODE_ID", "MS_NODE_RANK", "MS_SIMULATION_LEVEL", "MS_ENABLE_RECOVERY", "MS_RECOVERY_PATH",
    "MS_HCCL_CM_INIT", "RANK_ID", "RANK_SIZE", "RANK_TABLE_FILE", "MSRUN_CPU_LIST",
)  # fmt: skip
"""Variables by which a process joins a cluster of MindSpore; those of the user's shell are of another job."""
POLL_S = 0.1
MEMORY_SAMPLE_S = 0.25
TAIL_LINES = 20


@dataclass(frozen=True)
class Outcome:
    """Times and memory of a child that has ended."""

    started: float
    """Unix time, seconds."""
    ended: float
    peak_memory_gib: float
    """Peak of the process tree's resident memory, sampled four times a second."""


def run(
    command: Sequence[str],
    *,
    job: str,
    log: Path,
    worker_logs: Path | None = None,
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
        worker_logs: directory with the logs of workers that the child starts; None if it starts none.
        env: the child's environment; None for this process's. SCHEDULER_VARIABLES are left out.
        timeout_s: time limit; None for no limit.
        grace_s: seconds between SIGTERM and SIGKILL when the child is stopped.
        on_poll: called ten times a second, for example to show progress.

    Raises:
        ProcessFailed: the exit code is not 0; has the log of the worker that failed first, if known.
        LaunchError: the program cannot be started, or exceeded the time limit; the tree is ended.
    """
    base = {name: value for name, value in os.environ.items() if name != JOB_VARIABLE}
    inherited = os.environ if env is None else env
    passed = {name: value for name, value in inherited.items() if name not in SCHEDULER_VARIABLES}
    started, began = time.time(), time.monotonic()
    child: subprocess.Popen[bytes] | None = None
    peak = next_sample = 0.0
    with watchdog(base) as mark:
        try:
            with log.open("ab") as output:
                child = popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    env={**passed, JOB_VARIABLE: job, STARTED_VARIABLE: mark},
                    start_new_session=True,
                )
            while child.poll() is None:
                if timeout_s is not None and time.monotonic() > began + timeout_s:
                    late = f"not finished after {timeout_s:.0f} s, log {log}"
                    raise LaunchError(f"{late}; raise launcher.timeout_s")
                if time.monotonic() >= next_sample:
                    peak = max(peak, _tree_memory_gib(child.pid))
                    next_sample = time.monotonic() + MEMORY_SAMPLE_S
                on_poll()
                time.sleep(POLL_S)
        finally:  # also after an interrupt while the child starts
            running = child is None or child.poll() is None
            try:
                end_job(job, grace_s=grace_s if running else 0.0)
            except KeyboardInterrupt:  # a second interrupt ends the grace period
                end_job(job, grace_s=0.0)
                raise
            if child is not None:
                child.wait()
    code = child.returncode
    if code == 0:
        return Outcome(started, started + time.monotonic() - began, peak)  # the wall clock may be changed
    last = tail(log)
    names = {known.value: known.name for known in signal.Signals}
    how = f"with exit code {code}" if code > 0 else f"by signal {-code} ({names.get(-code, 'real-time')})"
    with contextlib.suppress(OSError), log.open("a", encoding="utf-8") as output:
        output.write(f"\ngrpoflow: ended {how}\n")  # a killed process cannot log that; see failures.yaml
    first = None if worker_logs is None else diagnose(worker_logs).culprit
    if first is not None:
        log, last = first, [*tail(first), *[line for line in last if line.startswith("error: ")]]
    raise ProcessFailed(code, log, last)


def tail(log: Path, lines: int = TAIL_LINES) -> list[str]:
    """Return the last lines of a log, from its last 64 KiB at most."""
    if not log.exists():
        return []
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - 65536))
        return file.read().decode("utf-8", errors="replace").splitlines()[-lines:]


def _tree_memory_gib(pid: int) -> float:
    total = 0
    with contextlib.suppress(psutil.Error):
        process = psutil.Process(pid)
        for member in [process, *process.children(recursive=True)]:
            with contextlib.suppress(psutil.Error):
                total += member.memory_info().rss
    return float(total) / 2**30
