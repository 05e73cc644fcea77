"""Watchdog process that ends a child's process tree if the starting process dies, even by SIGKILL.

It waits for the end of a pipe that only the starting process holds open, and is so small that it costs about
10 ms. Only when the pipe closes does it import the code that finds the tree.
"""

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping

from launch.process.tree import STARTED_VARIABLE, end_processes

WAIT = """
import os, sys
if not os.read(0, 1):
    os.execv(sys.argv[1], sys.argv[1:])
"""


@contextlib.contextmanager
def watchdog(environment: Mapping[str, str]) -> Iterator[str]:
    """Run a watchdog during a `with` statement; the value is the STARTED_VARIABLE of processes to end."""
    started = os.urandom(8).hex()
    process = subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", WAIT, sys.executable, "-m", __name__, started],
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


if __name__ == "__main__":
    end_processes(STARTED_VARIABLE, sys.argv[1])  # those of the next attempt at the same job go on
