"""Command line of a job; several workers on this machine are started by MindSpore's msrun."""

import os
import shutil
import socket
import sys
from collections.abc import Sequence
from pathlib import Path

from launch.config import LauncherConfig
from launch.errors import LaunchError


def describe(program: Sequence[str], *, workers: int, log_dir: Path, launcher: LauncherConfig) -> list[str]:
    """Return the command line that `job.run` starts."""
    python = Path(sys.executable)
    if workers == 1:
        return [str(python), *program]
    address = launcher.master_addr
    port = find_port(address, launcher.master_port)
    return command(
        program, python=python, workers=workers, master_addr=address, master_port=port, log_dir=log_dir
    )


def command(
    program: Sequence[str], *, python: Path, workers: int, master_addr: str, master_port: int, log_dir: Path
) -> list[str]:
    """Return the msrun command that starts `program` (arguments of python) once per worker.

    Raises:
        LaunchError: msrun is not installed next to the interpreter.
    """
    msrun = shutil.which("msrun", path=str(python.parent))
    if msrun is None:
        raise LaunchError(f"{python.parent}/msrun: not found; install mindspore 2.7.0 into that environment")
    paced = [str(python), str(Path(__file__).with_name("paced_msrun.py")), msrun]
    options = [f"--worker_num={workers}", f"--local_worker_num={workers}", f"--master_addr={master_addr}"]
    options += [f"--master_port={master_port}", f"--log_dir={log_dir}", "--tail_worker_log=0", "--join=True"]
    return [*paced, *options, "python", *program]


def environment(python: Path, base: dict[str, str]) -> dict[str, str]:
    """Return `base` with the directory of `python` first on PATH, where msrun looks for it."""
    return {**base, "PATH": f"{python.parent}{os.pathsep}{base.get('PATH', os.defpath)}"}


def find_port(address: str, port: int | None) -> int:
    """Return `port`, or any free one, after checking that it can be bound at `address`.

    Raises:
        LaunchError: the port is in use, or the address is not this machine's.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address, port or 0))
        except OSError as error:
            raise LaunchError(
                f"launcher.master_port={port}: cannot be bound on {address} ({error.strerror}); "
                "choose another, or null for any free one"
            ) from error
        return int(probe.getsockname()[1])
