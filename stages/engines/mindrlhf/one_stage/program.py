"""grpo_one_stage.py as a program that launch runs; see stages/engines/base.py."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stages.engines.base import Start, Tell
from stages.engines.mindrlhf.one_stage.job import Job
from stages.engines.mindrlhf.one_stage.stage import places_of
from stages.engines.mindrlhf.one_stage.start import start, write_configs
from stages.engines.mindrlhf.one_stage.watch import Watcher


def fresh(config: Mapping[str, Any], inputs: Mapping[str, Path], work: Path) -> Start:
    """How a run is started; it always begins anew."""
    return start(Job.of(config), places_of(work, inputs))


def write_files(config: Mapping[str, Any], inputs: Mapping[str, Path], work: Path) -> None:
    """Write the files that such a run reads."""
    write_configs(Job.of(config), places_of(work, inputs))


def watch(config: Mapping[str, Any], logs: Path, work: Path, tell: Tell) -> Watcher:
    """Follow a run."""
    return Watcher(logs, work, Job.of(config), tell)
