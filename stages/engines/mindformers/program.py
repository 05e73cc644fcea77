"""mindformers as a program that launch runs; see stages/engines/base.py."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stages.engines.base import Start, Tell
from stages.engines.mindformers.job import Job
from stages.engines.mindformers.stage import places_of
from stages.engines.mindformers.start import start, write_config
from stages.engines.mindformers.watch import Watcher


def fresh(config: Mapping[str, Any], inputs: Mapping[str, Path], work: Path) -> Start:
    """How a run is started that begins anew."""
    return start(Job.of(config), places_of(work, inputs["tokenize"]), resume=False)


def write_files(config: Mapping[str, Any], inputs: Mapping[str, Path], work: Path) -> None:
    """Write the YAML file of such a run."""
    write_config(Job.of(config), places_of(work, inputs["tokenize"]), resume=False)


def watch(config: Mapping[str, Any], logs: Path, work: Path, tell: Tell) -> Watcher:
    """Follow a run."""
    return Watcher(logs, work, Job.of(config), tell)
