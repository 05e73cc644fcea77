"""The command line of a job: several workers on this machine start through MindSpore's msrun."""

import os
import shutil
import socket
import sys
from collections.abc import Sequence
from pathlib import Path

from launch.config import LauncherConfig
from launch.errors import LaunchError


def describe(program: Sequence[str], *, workers: int, log_dir: Path, launcher: LauncherConfig) -> list[str]:
    """The command line that `job.run` would start now."""
    python = Path(sys.executable)
    if workers == 1:
        return [str(python), *program]
    port = find_port(launcher.master_addr, launcher.master_port)
    return command(
        program,
        python=python,
        workers=workers,
        master_addr=launcher.master_addr,
        master_port=port,
        log_dir=log_dir,
    )


def command(
    program: Sequence[str], *, python: Path, workers: int, master_addr: str, master_port: int, log_dir: Path
) -> list[str]:
    """The msrun line that starts `program` (arguments of python) once per worker.

    Raises:
        LaunchError: when msrun is not installed beside the interpreter.
    """
    msrun = shutil.which("msrun", path=str(python.parent))
    if msrun is None:
        raise LaunchError(f"{python.parent}/msrun: not found; install mindspore 2.7.0 into that environment")
    return [
        str(python),
        str(Path(__file__).with_name("paced_msrun.py")),
        msrun,
        f"--worker_num={workers}",
        f"--local_worker_num={workers}",
        f"--master_addr={master_addr}",
        f"--master_port={master_port}",
        f"--log_dir={log_dir}",
        "--tail_worker_log=0",
        "--join=True",
        "python",
        *program,
    ]


def environment(python: Path, base: dict[str, str]) -> dict[str, str]:
    """`base` with `python`'s directory first on PATH: msrun starts whatever `python` it finds there."""
    return {**base, "PATH": f"{python.parent}{os.pathsep}{base.get('PATH', os.defpath)}"}


def find_port(address: str, wanted: int | None) -> int:
    """A port of `address` that can be bound now: `wanted`, or any free one.

    Raises:
        LaunchError: when `wanted` is in use, or the address is not this machine's.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address, wanted or 0))
        except OSError as error:
            raise LaunchError(
                f"launcher.master_port={wanted}: cannot be bound on {address} ({error.strerror}); "
                "choose another, or leave it null to have a free one found"
            ) from error
        return int(probe.getsockname()[1])
