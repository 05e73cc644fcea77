"""Ray of this node: `ray start --block`, its directory, and the processes that it leaves behind."""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

POLL_S = 0.2
GRACE_S = 5.0
SLOW_START_S, STARTS = 25.0, 3
"""`ray start` gives up if its node is not registered after 30 s, which a busy machine may need. It is started
again if it ended after SLOW_START_S, at most STARTS times in all."""
REGISTERED = b"Ray runtime started"
"""Output of `ray start` when its node is registered."""
SAVED_LOG_BYTES = 64 * 2**10


class Failed(Exception):
    """Reason why the run cannot continue."""


class LocalRay:
    """The `ray start --block` of this node.

    Its directory is private. At the end it is removed, and the ends of Ray's logs are saved.
    """

    def __init__(self, command: list[str], name: str, directory: Path, saved: Path) -> None:
        self._command, self._name, self._directory, self._saved = command, name, directory, saved
        self._log = saved / "ray_start.txt"
        self._owner = directory / f"made_by_{name.replace('/', '_')}"
        self._child: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Create the directory, start Ray and wait until its node is registered.

        Raises:
            Failed: the directory belongs to another user, or Ray does not start.
        """
        self._saved.mkdir(exist_ok=True)
        if self._owner.exists():  # left by a killed run
            shutil.rmtree(self._directory)
        if not self._directory.exists():
            self._directory.mkdir(mode=0o700)
            self._owner.touch()
        elif self._directory.is_symlink() or self._directory.stat().st_uid != os.getuid():
            raise Failed(f"{self._directory} belongs to another user")
        with (self._directory / "starting").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # two nodes of one machine would choose the same socket names
            for _ in range(STARTS):
                began = time.monotonic()
                if self._start_once():
                    return
                if time.monotonic() - began <= SLOW_START_S:
                    break
        self.check()

    def _start_once(self) -> bool:
        """Start Ray; return True when its node is registered, False if it ended before."""
        environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
        with self._log.open("ab") as output:  # not the worker's log: it contains errors that are harmless
            begin = output.tell()
            try:
                self._child = subprocess.Popen(
                    self._command,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    env=environment,
                )
            except FileNotFoundError as error:
                message = f"{self._command[0]} is not installed beside {sys.executable}, nor on PATH"
                raise Failed(
                    f"{message}={os.environ.get('PATH')}; engine.python names another one"
                ) from error
        while self._child.poll() is None:
            if REGISTERED in self._log.read_bytes()[begin:]:
                return True
            time.sleep(POLL_S)
        return False

    def check(self) -> None:
        """Raise Failed if Ray has ended."""
        if self._child is not None and self._child.poll() is not None:
            code = self._child.returncode
            raise Failed(f"Ray on node {self._name} ended with exit code {code}, see {self._log}")

    def end(self) -> None:
        """End Ray and its remaining processes, which would wait a minute, and remove its directory."""
        if self._child is not None:
            end(self._child)
        while orphans := _children():
            for orphan in orphans:
                with contextlib.suppress(ProcessLookupError, ChildProcessError):
                    os.kill(orphan, signal.SIGKILL)
                    os.waitpid(orphan, 0)
        if self._owner.exists():
            self._save_logs()
            shutil.rmtree(self._directory, ignore_errors=True)

    def _save_logs(self) -> None:
        with contextlib.suppress(OSError):
            for log in self._directory.glob("*/session_2*/logs/*"):
                if log.is_file() and log.stat().st_size > 0:  # .txt: diagnose reads logs of workers only
                    (self._saved / f"{log.name}.txt").write_bytes(log.read_bytes()[-SAVED_LOG_BYTES:])


def adopt_orphans() -> None:
    """Make descendants whose parents end children of this process instead of init."""
    ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER


def _children() -> list[int]:
    children = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it has just ended
            after_name = stat.read_text(encoding="utf-8", errors="replace").rpartition(")")[2]
            if int(after_name.split()[1]) == os.getpid():
                children.append(int(stat.parent.name))
    return children


def end(child: subprocess.Popen[bytes]) -> None:
    """Send SIGTERM to a child, and SIGKILL after a grace period."""
    if child.poll() is None:
        child.terminate()
    try:
        child.wait(GRACE_S)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()
