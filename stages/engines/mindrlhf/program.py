"""mindrlhf as a program that launch runs; see stages/engines/base.py."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stages.engines.base import Start, Tell
from stages.engines.mindrlhf.job import Job, Places
from stages.engines.mindrlhf.stage import places_of
from stages.engines.mindrlhf.start import start, write_configs
from stages.engines.mindrlhf.watch import Watcher


def fresh(config: Mapping[str, Any], inputs: Mapping[str, Path], work: Path) -> Start:
    """How a run is started."""
    job = Job.of(config)
    return start(job, _places(job, inputs, work))


def write_files(config: Mapping[str, Any], inputs: Mapping[str, Path], work: Path) -> None:
    """Write the YAML files of a run."""
    job = Job.of(config)
    write_configs(job, _places(job, inputs, work))


def watch(config: Mapping[str, Any], logs: Path, work: Path, tell: Tell) -> Watcher:
    """Follow a run."""
    return Watcher(logs, work, Job.of(config), tell)


def _places(job: Job, inputs: Mapping[str, Path], work: Path) -> Places:
    return places_of(job, work, inputs["tokenize"] / "train.mindrecord")
