"""Launcher settings for tests."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from launch.config import LauncherConfig
from pipeline.config.load import load

SSH = """#!/bin/bash
[ "$1" = -G ] && { echo "hostname $2"; exit; }
while [ "$1" = -o ]; do shift 2; done
case "$1 $2" in *"bash -s check") ;; 127.0.0.9*) exec sleep 300 ;; esac  # answers, and then hangs
NODE_ADDR=$1 exec bash -c "$2"
"""
"""Machines that are this one, each at an address of its own."""


def local_launcher(**changes: Any) -> LauncherConfig:
    """conf/launcher/local.yaml, changed."""
    return replace(load([]).launcher, **changes)


def several(directory: Path, hosts: int) -> LauncherConfig:
    ssh = directory / "ssh"
    ssh.write_text(SSH)
    ssh.chmod(0o755)
    addresses = tuple(f"127.0.0.{2 + number}" for number in range(hosts))
    return local_launcher(name="ssh", hosts=addresses, ssh=(str(ssh),), cards_per_node=1, grace_s=8)
