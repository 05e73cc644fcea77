"""This node's own Ray: `ray start --block`, its directory, and what it leaves behind."""

from __future__ import annotations

import argparse
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
TOO_SLOW_S, STARTS = 25.0, 3
"""`ray start` gives up when its node is not registered after 30 s, which a busy machine may need: seconds
from which on an end counts as that, and how often it is started in all."""
CAME_UP = b"Ray runtime started"
"""What `ray start` says when its node is registered."""
SAVED_BYTES = 64 * 2**10
"""Of each of Ray's own logs, its end, that are kept."""


class Failed(Exception):
    """The run cannot go on; the message says why."""


def own_ray(options: argparse.Namespace, start: list[str], ends: contextlib.ExitStack) -> OwnRay:
    """Start this node's Ray, in a directory that others can't look into, whatever mode Ray gives its own."""
    directory, kept = Path(options.ray_dir), Path(options.log_dir) / f"ray_{options.name}"
    kept.mkdir(exist_ok=True)
    mine = directory / f"made_by_{options.name.replace('/', '_')}"
    if mine.exists():  # a killed run's
        shutil.rmtree(directory)
    if not directory.exists():
        directory.mkdir(mode=0o700)
        mine.touch()
        ends.callback(_clear, directory, kept)
    elif directory.is_symlink() or directory.stat().st_uid != os.getuid():
        raise Failed(f"{directory} belongs to another user")
    own = OwnRay(start, options.name, directory, kept / "ray_start.txt")
    ends.callback(own.end)
    own.start()
    return own


class OwnRay:
    """This node's `ray start --block`."""

    def __init__(self, command: list[str], name: str, directory: Path, log: Path) -> None:
        self._command, self._name, self._directory, self._log = command, name, directory, log
        self.starts = STARTS
        """How often it may still be started."""
        self._child: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it; one at a time on a machine: two would take the same names for their sockets."""
        with (self._directory / "starting").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            sockets = self._sockets()
            self.starts, self._since = self.starts - 1, time.monotonic()
            try:
                with self._log.open("ab") as output:  # apart: it tells of errors that are none
                    self._said = output.tell()
                    child = self._child = subprocess.Popen(
                        self._command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT
                    )
            except FileNotFoundError as error:
                what = f"{self._command[0]} is not installed beside {sys.executable}, nor on PATH"
                raise Failed(f"{what}={os.environ.get('PATH')}; engine.python names another one") from error
            while self._sockets() < sockets + 2 and time.monotonic() - self._since < TOO_SLOW_S:
                if child.poll() is not None:
                    break
                time.sleep(POLL_S)

    def _sockets(self) -> int:
        return len(list(self._directory.glob("*/session_2*/sockets/*")))

    def check(self) -> None:
        """Raise unless it runs; one that was too slow to come up gets another chance."""
        if self._child is None or self._child.poll() is None:
            return
        lasted = time.monotonic() - self._since
        if lasted > TOO_SLOW_S and self.starts > 0 and not self._came_up():
            print(f"ray start ended after {lasted:.0f} s; it is started again", flush=True)
            self.start()
            return
        code = self._child.returncode
        raise Failed(f"Ray on node {self._name} ended with exit code {code}, see {self._log}")

    def _came_up(self) -> bool:
        with self._log.open("rb") as log:
            log.seek(self._said)
            return CAME_UP in log.read()

    def end(self) -> None:
        """End it, and what it leaves behind: agents that wait a minute for a cluster that is gone."""
        if self._child is not None:
            end(self._child)
        while orphans := _children():
            for orphan in orphans:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(orphan, signal.SIGKILL)
            for orphan in orphans:
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(orphan, 0)


def adopt_orphans() -> None:
    """Descendants whose parents end become this process's children, not init's."""
    ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER


def _children() -> list[int]:
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it has just ended
            after_name = stat.read_text(encoding="utf-8", errors="replace").rpartition(")")[2]
            if int(after_name.split()[1]) == os.getpid():
                found.append(int(stat.parent.name))
    return found


def end(child: subprocess.Popen[bytes]) -> None:
    """End a child: soon, or at once."""
    if child.poll() is None:
        child.terminate()
    try:
        child.wait(GRACE_S)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()


def _clear(directory: Path, kept: Path) -> None:
    """Remove Ray's directory, but for the ends of its logs; they are no logs of workers, and are named so."""
    with contextlib.suppress(OSError):
        for log in directory.glob("*/session_2*/logs/*"):
            if log.is_file() and log.stat().st_size > 0:
                with log.open("rb") as file:
                    file.seek(max(0, log.stat().st_size - SAVED_BYTES))
                    (kept / f"{log.name}.txt").write_bytes(file.read())
    shutil.rmtree(directory, ignore_errors=True)
