"""Everything that the pipeline reports instead of showing a traceback."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from pathlib import Path

from launch.errors import LaunchError
from stages.errors import ConfigError, InputError, Problem, StageError

__all__ = ["REPORTED", "ConfigError", "InputError", "NoResult", "Problem", "StageFailed", "StoreError"]


class StoreError(Exception):
    """The artifact store cannot be read or written, or an artifact in it is damaged."""


class NoResult(StoreError):
    """A stage has ended as if it had done its work, and has not."""


class StageFailed(Exception):
    """A stage's process ended badly; says where to look."""

    def __init__(
        self, stage: str, cause: str, log: Path, tail: list[str], diagnosis: Sequence[str] = ()
    ) -> None:
        self.stage, self.cause, self.log, self.tail = stage, cause, log, tail
        errors = [line for line in tail if line.startswith("error: ")]
        shown = errors[-1:] or [f"  | {line}" for line in tail]
        super().__init__("\n".join([f"stage {stage} failed: {cause}", *shown, *diagnosis, f"log: {log}"]))


class Exit(enum.IntEnum):
    """Exit codes of commands; 130 and 143 are those of signals."""

    DONE = 0
    FAILED = 1
    """Of a stage, a check or a search."""
    INVALID = 2
    """The configuration or the command line."""
    PENDING = 10
    """Of plan: there is work to do."""


REPORTED = (StageError, LaunchError, StoreError, StageFailed)
"""What a command turns into one message and an exit code."""
