"""Launcher settings for tests, and jobs that are started with them."""

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from launch.config import LauncherConfig
from launch.nodes import run as nodes_run
from launch.nodes.start import Start
from pipeline.config.load import load

SSH = """#!/bin/bash
[ "$1" = -G ] && { echo "hostname $2"; exit; }
while [ "$1" = -o ]; do shift 2; done
case "$1 $2" in *"bash -s check") ;; 127.0.0.9*) exec sleep 300 ;; esac  # answers, and then hangs
NODE_ADDR=$1 exec bash -c "$2"
"""
"""Machines that are this one, each at an address of its own."""


def local_launcher(**changes: Any) -> LauncherConfig:
    """Return conf/launcher/local.yaml, changed."""
    return replace(load([]).launcher, **changes)


def executable(file: Path, text: str) -> Path:
    """Write a program; return its path."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    file.chmod(0o755)
    return file


def several(directory: Path, hosts: int) -> LauncherConfig:
    """Return a launcher whose hosts are addresses of the loopback."""
    ssh = executable(directory / "ssh", SSH)
    addresses = [f"127.0.0.{2 + number}" for number in range(hosts)]
    return ssh_launcher(addresses, [str(ssh)], grace_s=8)


def ssh_launcher(hosts: list[str], ssh: list[str], grace_s: float) -> LauncherConfig:
    """Return a launcher with one card on each host."""
    return local_launcher(name="ssh", hosts=tuple(hosts), ssh=tuple(ssh), cards_per_node=1, grace_s=grace_s)


def make_start(directory: Path, source: str, *arguments: str, **changes: Any) -> Start:
    """Write the Python program of a job; return its start, two workers of this interpreter."""
    program = directory / "program.py"
    program.write_text(source)
    start = Start((str(program), *arguments), 2, sys.executable, {}, (), (), (), str(directory / "run"))
    return replace(start, **changes)


def run_job(
    directory: Path, start: Start, launcher: LauncherConfig, on_poll: Callable[[], object] = lambda: None
) -> Path:
    """Run a job to its end; return the directory of its logs."""
    logs = directory / "logs"
    logs.mkdir(exist_ok=True)
    nodes_run.run(
        start, job=str(directory), directory=directory / "launch", logs=logs, launcher=launcher,
        on_poll=on_poll,
    )  # fmt: skip
    return logs
