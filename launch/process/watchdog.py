"""Watchdog process that ends a child's process tree if the starting process dies, even by SIGKILL.

It waits for the end of a pipe that only the starting process holds open, and is so small that it costs about
10 ms. Only when the pipe closes does it import the code that finds the tree.
"""

import contextlib
import os
import subprocess
import sys
from collections.abc import Mapping
from types import TracebackType

from launch.process.tree import end_started

WAIT = """
import os, sys
if not os.read(0, 1):
    os.execv(sys.argv[1], sys.argv[1:])
"""


class Watchdog:
    """The watchdog of one start, for the time of a `with` statement."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self.started = os.urandom(8).hex()
        self._environment = dict(environment)

    def __enter__(self) -> "Watchdog":
        reap = [sys.executable, "-m", __name__, self.started]
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", WAIT, *reap],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # a signal to the starting process's group must not end it
            env=self._environment,
        )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # the watchdog was ended from outside
            os.write(self._process.stdin.fileno(), b"x")
        self._process.stdin.close()
        self._process.wait()


if __name__ == "__main__":
    end_started(sys.argv[1])
