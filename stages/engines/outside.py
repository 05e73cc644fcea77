"""Somebody else's program that does a stage's work: how it is started, and what is asked of its module.

stages.base.graph.Program names a module with the functions of Module.
"""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from launch.nodes.start import Start

if TYPE_CHECKING:
    from stages.base.context import Context

START_FILE = "start.json"
Tell = Callable[[float, float, str], None]
"""Step, total, message."""


def write_start(work: Path, start: Start, results: Path | None = None, **told: Any) -> None:
    """Write what launch is to start, beside what `collect` wants to be told.

    Args:
        work: where the file appears.
        start: what launch is told.
        results: directory whose files prove that the program has worked, but for those that lie there now.
        told: what else `collect` asks for.
    """
    files = results.rglob("*") if results is not None and results.is_dir() else ()
    earlier = {str(file): _state(file) for file in files if file.is_file()}
    content = {"start": dataclasses.asdict(start), "earlier": earlier, **told}
    (work / START_FILE).write_text(json.dumps(content, indent=1), encoding="utf-8")


def is_new(file: Path, earlier: Mapping[str, list[int]]) -> bool:
    """Whether `file` was written since `write_start` recorded `earlier`, whatever the clock was set to."""
    return file.is_file() and earlier.get(str(file)) != _state(file)


def _state(file: Path) -> list[int]:
    status = file.stat()
    return [status.st_ino, status.st_size, status.st_mtime_ns]


def says(log: Path, text: str) -> bool:
    """Whether a line of a log, which may have gigabytes, holds `text`."""
    if not log.exists():
        return False
    with log.open(encoding="utf-8", errors="replace") as lines:
        return any(text in line for line in lines)


def move_in(source: Path, target: Path) -> None:
    """A second name on the same disk, else a copy: the checkpoint stays until the artifact is committed."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)


class Watch(Protocol):
    """Follows a run's logs."""

    @property
    def silence_timeout_s(self) -> float | None:
        """A run that is silent for longer is stopped as hung; None: never."""

    def poll(self, ended: bool = False) -> None:
        """Read what is new; called ten times a second, and once more when the run has ended."""

    def silent_s(self) -> float:
        """Seconds since a process last wrote a line."""


class Module(Protocol):
    """What a module holds that has a program do a stage's work."""

    __name__: str

    def fresh(self, config: Mapping[str, Any], inputs: Mapping[str, Path], work: Path) -> Start:
        """How a run is started; `inputs` need not be there yet."""

    def write_files(self, config: Mapping[str, Any], inputs: Mapping[str, Path], work: Path) -> None:
        """Write the files that such a run reads, as far as they follow from the configuration."""

    def watch(self, config: Mapping[str, Any], logs: Path, work: Path, tell: Tell) -> Watch:
        """Follow a run whose logs appear in `logs`; metrics grow in `work`."""

    def prepare(self, context: Context) -> None:
        """Write what the program reads, in the work directory; ends in `write_start`."""

    def collect(self, context: Context) -> None:
        """Prove that the program has worked, and bring the result home."""
