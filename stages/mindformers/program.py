"""mindformers as a program that launch runs; see stages/program.py."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stages.mindformers.job import Job
from stages.mindformers.stage import places_of
from stages.mindformers.start import start, write_config
from stages.mindformers.watch import Watcher
from stages.program import Start, Tell


def fresh(config: Mapping[str, Any], inputs: Mapping[str, Path], work: Path) -> Start:
    """How a run is started that begins anew."""
    return start(Job.of(config), places_of(work, inputs["tokenize"]), resume=False)


def write_files(config: Mapping[str, Any], inputs: Mapping[str, Path], work: Path) -> None:
    """Write the YAML file of such a run."""
    write_config(Job.of(config), places_of(work, inputs["tokenize"]), resume=False)


def watch(config: Mapping[str, Any], logs: Path, work: Path, tell: Tell) -> Watcher:
    """Follow a run."""
    return Watcher(logs, work, Job.of(config), tell)
