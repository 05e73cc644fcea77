"""msrun that waits better; run as a program: `python paced_msrun.py /path/to/msrun ARGUMENTS`.

msrun --join=True waits for its workers by calling poll() without a pause (mindspore 2.7.0,
parallel/cluster/process_entity/_api.py, join_processes) and takes a whole core from them. Lowering
its priority is not enough where two CPUs are two threads of one core. So poll() waits here. Then it waits for
the scheduler, which looks every five seconds whether its workers have left, and after a failure for half a
minute. So wait() ends the scheduler here, which by then serves nobody.

Workers on CPUs meet in a directory that this program makes and removes.
"""

import os
import runpy
import subprocess
import sys
import tempfile
import time

PAUSE_S = 0.05


class PacedPopen(subprocess.Popen):  # type: ignore[type-arg]
    """A child process whose state is asked for at most twenty times a second; `python` is ours."""

    workers = 0
    """Started so far."""

    def __init__(self, args: list[str] | str, *others: object, **options: object) -> None:
        """As Popen; msrun itself takes the first `python` on PATH (_utils.py, _generate_cmd_args_list)."""
        self.role = None
        if isinstance(args, list) and "python" in args:  # not what shows a worker's log
            args[args.index("python")] = sys.executable
            self.role = os.environ.get("MS_ROLE")
            PacedPopen.workers += self.role == "MS_WORKER"
        super().__init__(args, *others, **options)  # type: ignore[call-overload]

    def poll(self) -> int | None:
        """As Popen.poll, after a pause."""
        time.sleep(PAUSE_S)
        return super().poll()

    def wait(self, timeout: float | None = None) -> int:
        """As Popen.wait; msrun waits for its scheduler alone, once all of its own workers have ended."""
        everybody = PacedPopen.workers == int(os.environ.get("MS_WORKER_NUM", "0"))
        if self.role == "MS_SCHED" and everybody and self.poll() is None:
            self.terminate()
            super().wait()
            self.returncode = 0
        return super().wait(timeout)


if __name__ == "__main__":
    subprocess.Popen = PacedPopen  # type: ignore[misc, assignment]
    sys.argv = sys.argv[1:]
    with tempfile.TemporaryDirectory(prefix="grpoflow-", dir="/tmp") as directory:  # sockets' paths are short
        os.environ["GRPOFLOW_MEETING_PLACE"] = directory
        try:
            runpy.run_path(sys.argv[0], run_name="__main__")
            code = None
        except SystemExit as exit:
            code = exit.code
    if not code:  # MindSpore, which msrun imports, takes a third of a second to end
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)
    sys.exit(code)
