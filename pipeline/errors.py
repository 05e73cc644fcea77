"""Everything that the pipeline reports instead of showing a traceback."""

from __future__ import annotations

import enum
import errno
from collections.abc import Sequence
from pathlib import Path

from launch.errors import LaunchError
from stages.base.errors import ConfigError, InputError, Problem, StageError

__all__ = [
    "REPORTED", "ConfigError", "InputError", "NoResult", "Problem", "RemoteError", "StageFailed",
    "StoreError",
]  # fmt: skip
ELSEWHERE = "choose another store with store=DIR"


class StoreError(Exception):
    """The artifact store cannot be read or written, or an artifact in it is damaged."""

    @classmethod
    def of(cls, error: OSError, where: Path) -> StoreError:
        """The failure of an operating system call on the store, with what to do about it."""
        writable = f"make it writable for you, or {ELSEWHERE}"
        remedies = {
            errno.ENOENT: "somebody removed it meanwhile: type the same command again",
            errno.ENOSPC: f"free space there, or {ELSEWHERE}",
            errno.EDQUOT: f"free quota there, or {ELSEWHERE}",
            errno.EACCES: writable,
            errno.EPERM: writable,
            errno.EROFS: ELSEWHERE,
        }
        remedy = remedies.get(error.errno or 0, ELSEWHERE)
        return cls(f"{error.filename or where}: {error.strerror}; {remedy}")


class NoResult(StoreError):
    """A stage has ended as if it had done its work, and has not."""


class RemoteError(StoreError):
    """The remote does not answer, or what it holds is refused."""

    refused: str | None = None
    """The path of a copy that is not what it should be; None: it does not answer."""

    @classmethod
    def of_copy(cls, path: str, reason: str) -> RemoteError:
        """What it holds at a path is refused."""
        error = cls(reason)
        error.refused = path
        return error


class NotThere(RemoteError):
    """The remote answers that it does not have an object."""


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
    """Exit codes of commands; 130, 141 and 143 are those of signals."""

    DONE = 0
    FAILED = 1
    """Of a stage, a check or a search."""
    INVALID = 2
    """The configuration or the command line."""
    PENDING = 10
    """Of plan: there is work to do."""


REPORTED = (StageError, LaunchError, StoreError, StageFailed)
"""What a command turns into one message and an exit code."""
