"""Trackers of experiments that a run can report its metrics to: a module NAME here with a TRACKER each.

Their packages would also record the machine, the command line, the code and the output. All of that is
switched off, because artifacts may be given to other people. Each works offline, into the artifact, unless
its own environment variables say otherwise.
"""

import pkgutil
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

PROJECT = "grpoflow"
NAMES = tuple(sorted(module.name for module in pkgutil.iter_modules(__path__) if module.name != "process"))
"""Names of all trackers, which are also those of their packages."""


class Tracker(ABC):
    """One run at a tracker, in a process of its own (trackers/process.py)."""

    left_out: ClassVar[tuple[str, ...]] = ()
    """Names in the run's directory that do not become part of the artifact."""

    @abstractmethod
    def __init__(self, directory: Path, name: str, config: Mapping[str, Any]) -> None:
        """Begin a run that writes its files into `directory`."""

    @abstractmethod
    def add(self, step: int, numbers: Mapping[str, float]) -> None:
        """Add the metrics of one step."""

    @abstractmethod
    def close(self) -> None:
        """End the run and write everything to disk."""
