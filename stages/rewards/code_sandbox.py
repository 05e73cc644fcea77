"""Program inside the sandbox of code.py: it limits itself, and runs a generated program and its tests.

    python code_sandbox.py REQUEST REPORT USER

Request and report are file descriptors; USER is the user to become, 0 for none. A line of the report is the
run's token, which the generated program does not get, and "started" or "passed INDEX".
"""

import json
import os
import resource
import sys
from typing import Any


def limit(user: int, timeout_s: float, memory_mib: int, processes: int, files: int, file_mib: int) -> None:
    """Set the limits of this process and all that it starts, and become another user."""
    seconds = int(timeout_s) + 1
    # in a namespace of users, bubblewrap's own process in the sandbox counts, too
    counted = processes if user else processes + 1
    for kind, value in (
        (resource.RLIMIT_CPU, seconds),
        (resource.RLIMIT_AS, memory_mib << 20),
        (resource.RLIMIT_NPROC, counted),
        (resource.RLIMIT_NOFILE, files),
        (resource.RLIMIT_FSIZE, file_mib << 20),
        (resource.RLIMIT_CORE, 0),
    ):
        resource.setrlimit(kind, (value, value))
    if user:
        os.setgroups([])
        os.setresgid(user, user, user)
        os.setresuid(user, user, user)


def main(request: int, report: int, user: int) -> None:
    """Run the program, then its tests; each that raises nothing has passed."""
    with os.fdopen(request, "rb") as stream:
        values = json.load(stream)
    token, limits = values.pop("token"), values.pop("limits")
    limit(user, *limits)
    os.write(report, f"{token} started\n".encode())
    space: dict[str, Any] = {"__name__": "__main__", "__builtins__": __builtins__}
    if not values["tests"]:
        os.close(report)
        exec(compile(values["program"], "program.py", "exec"), space)  # noqa: S102
        return
    sys.stdout = sys.stderr = open(os.devnull, "w")  # noqa: SIM115  nobody reads what it prints
    exec(compile(values["program"], "program.py", "exec"), space)  # noqa: S102
    for index, test in enumerate(values["tests"]):
        try:
            exec(compile(test, f"test_{index}.py", "exec"), space)  # noqa: S102
        except Exception:  # noqa: S112  it has not passed
            continue
        os.write(report, f"{token} passed {index}\n".encode())


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
