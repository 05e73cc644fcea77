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
NAMES = tuple(sorted({module.name for module in pkgutil.iter_modules(__path__)} - {"process", "tensorboard"}))
"""Values of train.loggers, also the names of their packages; TensorBoard's files are always written."""


class Tracker(ABC):
    """One run at a tracker."""

    left_out: ClassVar[tuple[str, ...]] = ()
    """Names in the run's directory that do not become part of the artifact."""

    def __init__(self, directory: Path, name: str, config: Mapping[str, Any]) -> None:
        """Begin a run that writes its files into `directory`."""
        self.directory, self.name, self.config = directory, name, dict(config)
        self.start()

    @abstractmethod
    def start(self) -> None:
        """Begin the run."""

    @abstractmethod
    def add(self, row: Mapping[str, Any]) -> None:
        """Add a row of metrics.jsonl."""

    @abstractmethod
    def close(self) -> None:
        """End the run and write everything to disk."""


def numbers(row: Mapping[str, Any]) -> dict[str, float]:
    """Return a row without the columns that trackers count themselves."""
    return {name: value for name, value in row.items() if name not in ("step", "time_s")}
