"""msrun with a pause in its waiting loop; run as a program: `python paced_msrun.py /path/to/msrun ARGUMENTS`.

msrun --join=True waits for its workers by calling poll() without a pause (mindspore 2.7.0,
parallel/cluster/process_entity/_api.py, join_processes) and takes a whole core from them. Lowering
its priority is not enough where two CPUs are two threads of one core. So poll() waits here.
"""

import runpy
import subprocess
import sys
import time

PAUSE_S = 0.05


class PacedPopen(subprocess.Popen):  # type: ignore[type-arg]
    """A child process whose state is asked for at most twenty times a second; `python` is ours."""

    def __init__(self, args: list[str] | str, *others: object, **options: object) -> None:
        """As Popen; msrun itself takes the first `python` on PATH (_utils.py, _generate_cmd_args_list)."""
        if isinstance(args, list) and "python" in args:
            args[args.index("python")] = sys.executable
        super().__init__(args, *others, **options)  # type: ignore[call-overload]

    def poll(self) -> int | None:
        """As Popen.poll, after a pause."""
        time.sleep(PAUSE_S)
        return super().poll()


if __name__ == "__main__":
    subprocess.Popen = PacedPopen  # type: ignore[misc, assignment]
    sys.argv = sys.argv[1:]
    runpy.run_path(sys.argv[0], run_name="__main__")
