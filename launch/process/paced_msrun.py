"""msrun with pauses while it waits; run as `python paced_msrun.py /path/to/msrun ARGUMENTS`.

msrun --join=True calls poll() without a pause (mindspore 2.7.0, parallel/cluster/process_entity/_api.py,
join_processes), which takes a core from the workers. Then it waits for its scheduler, which notices their end
after five seconds, or half a minute if one failed. PacedPopen pauses in poll(), and ends the scheduler when
all workers have ended.

Workers on CPUs exchange sums through sockets in a directory that this program creates and removes.
"""

import contextlib
import os
import runpy
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator

PAUSE_S = 0.05
PLACES = ("/tmp", "/var/tmp", "/dev/shm")  # noqa: S108
"""Directories for sockets if that for temporary files (TMPDIR) does not allow them."""


class PacedPopen(subprocess.Popen):  # type: ignore[type-arg]
    """A child process that is polled at most twenty times a second; `python` is this interpreter."""

    workers = 0
    """Number of workers started."""

    def __init__(self, args: list[str] | str, *remaining: object, **options: object) -> None:
        """Create the process like Popen, but with this interpreter: msrun takes `python` from PATH."""
        self.role = None
        if isinstance(args, list) and "python" in args:  # not the command that prints a worker's log
            args[args.index("python")] = sys.executable
            self.role = os.environ.get("MS_ROLE")
            PacedPopen.workers += self.role == "MS_WORKER"
        super().__init__(args, *remaining, **options)  # type: ignore[call-overload]

    def poll(self) -> int | None:
        """Poll like Popen.poll, but after a pause."""
        time.sleep(PAUSE_S)
        return super().poll()

    def wait(self, timeout: float | None = None) -> int:
        """Wait like Popen.wait, but end a scheduler whose workers all ran on this machine.

        msrun waits for its scheduler only when these workers have ended.
        """
        all_workers = PacedPopen.workers == int(os.environ.get("MS_WORKER_NUM", "0"))
        if self.role == "MS_SCHED" and all_workers and self.poll() is None:
            self.terminate()
            super().wait()
            self.returncode = 0
        return super().wait(timeout)


@contextlib.contextmanager
def socket_directory() -> Iterator[str]:
    """Create a private directory for sockets, whose paths may have 107 bytes, and remove it at the end.

    Raises:
        OSError: no directory is writable, has a short path and is on a file system with sockets.
    """
    problem = OSError("no directory for temporary files")
    for place in dict.fromkeys([*_temporary(), *PLACES]):
        with contextlib.ExitStack() as stack:
            try:
                directory = stack.enter_context(tempfile.TemporaryDirectory(prefix="grpoflow-", dir=place))
                with socket.socket(socket.AF_UNIX) as trial:
                    trial.bind(f"{directory}/100000")
                os.unlink(f"{directory}/100000")
            except OSError as error:
                problem = error
                continue
            yield directory
            return
    raise problem


def _temporary() -> list[str]:
    """Return the directory for temporary files; none if no directory is writable."""
    with contextlib.suppress(OSError):
        return [tempfile.gettempdir()]
    return []


def main() -> None:
    """Run msrun with the arguments of the command line."""
    subprocess.Popen = PacedPopen  # type: ignore[misc, assignment]
    sys.argv = sys.argv[1:]
    with contextlib.ExitStack() as stack:
        try:
            directory = stack.enter_context(socket_directory())
        except OSError as error:
            rule = f"no place for the sockets of workers ({error.strerror or error})"
            sys.exit(f"error: TMPDIR: {rule}; set it to a writable directory with a short path")
        os.environ["GRPOFLOW_MEETING_PLACE"] = directory
        runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    main()
