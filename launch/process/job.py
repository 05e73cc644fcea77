"""Jobs: a Python program as a single process, or as several workers under MindSpore's msrun."""

import errno
import os
import shutil
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from launch.config import LauncherConfig
from launch.errors import LaunchError
from launch.process import child

PYTHON_VARIABLES = ("VIRTUAL_ENV", "PYTHONPATH", "PYTHONHOME", "PYTHONSTARTUP")


def run(
    program: Sequence[str],
    *,
    workers: int,
    job: str,
    log_dir: Path,
    launcher: LauncherConfig,
    on_poll: Callable[[], None] = lambda: None,
) -> child.Outcome:
    """Run `python PROGRAM` to its end: directly for one worker, under msrun for several.

    `program` are the interpreter's arguments, for example ["-m", "stages", "grpo", "spec.json"]; `job` and
    `on_poll` are as in launch.process.child. `log_dir` receives stage.log and, with several workers,
    scheduler.log and worker_K.log. Raise LaunchError if the job cannot start, fails, or takes too long.
    """
    python, command = Path(sys.executable), [sys.executable, *program]
    if workers > 1:
        address = launcher.master_addr if launcher.on_one_machine else "127.0.0.1"
        port = find_port(address, launcher.master_port)
        command = msrun(
            program, python=python, workers=workers, master_addr=address, master_port=port, log_dir=log_dir
        )
    return child.run(
        command,
        job=job,
        log=log_dir / "stage.log",
        worker_logs=log_dir if workers > 1 else None,
        env=msrun_environment(python, os.environ),
        timeout_s=launcher.timeout_s,
        grace_s=launcher.grace_s,
        on_poll=on_poll,
    )


def msrun(
    program: Sequence[str], *, python: Path, workers: int, master_addr: str, master_port: int, log_dir: Path
) -> list[str]:
    """Return the msrun command that starts `program` (python's arguments) once per worker.

    Raises:
        LaunchError: msrun is not installed next to the interpreter.
    """
    path = shutil.which("msrun", path=str(python.parent))
    if path is None:
        remedy = f"it comes with MindSpore: {python} -m pip install 'grpoflow[local]'"
        raise LaunchError(f"{python.parent}/msrun: not found; {remedy}")
    paced = [str(python), str(Path(__file__).with_name("paced_msrun.py")), path]
    options = [f"--worker_num={workers}", f"--local_worker_num={workers}", f"--master_addr={master_addr}"]
    options += [f"--master_port={master_port}", f"--log_dir={log_dir}", "--tail_worker_log=0", "--join=True"]
    return [*paced, *options, "python", *program]


def engine_environment(base: Mapping[str, str]) -> dict[str, str]:
    """Return `base` without grpoflow's virtual environment; an engine has its own packages."""
    excluded = Path(sys.prefix, "bin").resolve()
    entries = base.get("PATH", os.defpath).split(os.pathsep)
    path = [entry for entry in entries if Path(entry).resolve() != excluded]
    variables = {name: value for name, value in base.items() if name not in PYTHON_VARIABLES}
    return {**variables, "PATH": os.pathsep.join(path)}


def msrun_environment(python: Path, base: Mapping[str, str]) -> dict[str, str]:
    """Return `base` with the directory of `python` first on PATH, where msrun looks for it."""
    return {**base, "PATH": f"{python.parent}{os.pathsep}{base.get('PATH', os.defpath)}"}


def find_port(address: str, port: int | None) -> int:
    """Return `port`, or any free one; raise LaunchError if it cannot be bound at `address`."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address, port or 0))
        except OSError as error:
            is_port = error.errno in (errno.EADDRINUSE, errno.EACCES)
            key = f"launcher.master_port={port}" if is_port else f"launcher.master_addr={address}"
            rule = f"cannot be bound on this machine ({error.strerror}); choose another, or leave it out"
            raise LaunchError(f"{key}: {rule}") from error
        return int(probe.getsockname()[1])
