"""Processes that tests start: waiting for a condition, and the processes of a job."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Set
from pathlib import Path
from typing import Any

import psutil

from launch.process.tree import JOB_VARIABLE


def wait_until(
    condition: Callable[[], object],
    seconds: float = 60.0,
    process: subprocess.Popen[Any] | None = None,
    describe: Callable[[], object] = lambda: "the condition is not met in time",
) -> None:
    """Wait until `condition()` is true; fail with `describe()` after `seconds` or if `process` ends."""
    deadline = time.monotonic() + seconds
    has_ended = False
    while not condition():
        assert not has_ended and time.monotonic() < deadline, describe()
        time.sleep(0.05)
        has_ended = process is not None and process.poll() is not None


@contextlib.contextmanager
def unanswered_download() -> Iterator[list[str]]:
    """Yield overrides with which fetch_dataset waits for the answer of a server."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"http://127.0.0.1:{server.getsockname()[1]}/rows.jsonl"
        files = [f"dataset.files.{split}.name={address}" for split in ("train", "test")]
        yield ["dataset=gsm8k", "dataset.source=url", "dataset.hub=null", *files]


def living(root: Path) -> dict[int, str]:
    """Return the job of each living process, by its id, for jobs whose name begins with `root`."""
    result = {}
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            job = process.environ().get(JOB_VARIABLE, "")
            if job.startswith(str(root)) and process.status() != psutil.STATUS_ZOMBIE:
                result[process.pid] = job
    return result


def in_sessions(sessions: Set[int]) -> list[psutil.Process]:
    """Return the living processes of sessions; Ray's workers lose a job's variables, but not its session."""
    result = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, ProcessLookupError):
            if os.getsid(process.pid) in sessions and process.status() != psutil.STATUS_ZOMBIE:
                result.append(process)
    return result
