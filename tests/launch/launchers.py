"""Launcher settings for tests."""

from dataclasses import replace
from typing import Any

from launch.config import LauncherConfig
from pipeline.config import load


def local_launcher(**changes: Any) -> LauncherConfig:
    """conf/launcher/local.yaml, changed."""
    return replace(load([]).launcher, **changes)
