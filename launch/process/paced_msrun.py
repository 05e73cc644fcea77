"""msrun with pauses while it waits; run as `python paced_msrun.py /path/to/msrun ARGUMENTS`.

msrun --join=True calls poll() without a pause (mindspore 2.7.0, parallel/cluster/process_entity/_api.py,
join_processes), which takes a core from the workers. Then it waits for its scheduler, which notices their end
after five seconds, or half a minute if one failed. PacedPopen pauses in poll(), and ends the scheduler when
all workers have ended.

Workers on CPUs exchange sums through sockets in a directory that this program creates and removes.
"""

import os
import runpy
import subprocess
import sys
import tempfile
import time

PAUSE_S = 0.05


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


if __name__ == "__main__":
    subprocess.Popen = PacedPopen  # type: ignore[misc, assignment]
    sys.argv = sys.argv[1:]
    with tempfile.TemporaryDirectory(prefix="grpoflow-", dir="/tmp") as directory:  # sockets need short paths
        os.environ["GRPOFLOW_MEETING_PLACE"] = directory
        runpy.run_path(sys.argv[0], run_name="__main__")
