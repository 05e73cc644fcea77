"""Errors that commands report as a message without a traceback, and exit codes."""

from __future__ import annotations

import contextlib
import enum
import errno
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from launch.errors import LaunchError
from pipeline.terminal import say
from stages.base.errors import ConfigError, InputError, Problem, StageError

__all__ = [
    "REPORTED", "ConfigError", "InputError", "NoResult", "NotComposed", "Problem", "RemoteError",
    "StageError", "StageFailed", "StoreError", "check_working_directory", "report", "store_errors",
]  # fmt: skip
ELSEWHERE = "choose another store with store=DIR"


class NotComposed(ConfigError):
    """The configuration cannot be composed, so no rule was checked."""


class StoreError(Exception):
    """The artifact store cannot be read or written, or an artifact in it is damaged."""

    @classmethod
    def from_os_error(cls, error: OSError, where: Path, elsewhere: str = ELSEWHERE) -> StoreError:
        """Create an error from a failed system call on files below `where`, with a remedy."""
        writable = f"make it writable for you, or {elsewhere}"
        remedies = {
            errno.ENOENT: "somebody removed it meanwhile: type the same command again",
            errno.ENOSPC: f"free space there, or {elsewhere}",
            errno.EDQUOT: f"free quota there, or {elsewhere}",
            errno.EACCES: writable,
            errno.EPERM: writable,
            errno.EROFS: elsewhere,
        }
        remedy = remedies.get(error.errno or 0, elsewhere)
        return cls(f"{error.filename or where}: {error.strerror}; {remedy}")


@contextlib.contextmanager
def store_errors(where: Path, elsewhere: str = ELSEWHERE) -> Iterator[None]:
    """Raise failed system calls of the code inside, which uses files below `where`, as StoreError."""
    try:
        yield
    except OSError as error:
        raise StoreError.from_os_error(error, where, elsewhere) from error


class NoResult(StoreError):
    """A stage exited with 0 without writing a required file."""


class RemoteError(StoreError):
    """The remote does not respond, or responds with an error."""


class Refused(RemoteError):
    """Content of a remote is damaged or malicious."""


class NotThere(RemoteError):
    """A file does not exist on the remote."""


class StageFailed(Exception):
    """A stage's process failed; the message contains the last lines and the path of its log."""

    def __init__(
        self,
        stage: str,
        cause: str,
        log: Path,
        tail: list[str],
        diagnosis: Sequence[str] = (),
        may_pass: bool = False,
    ) -> None:
        """`may_pass`: another attempt may succeed, because the stage has not reported the failure itself."""
        self.stage, self.cause, self.log, self.tail = stage, cause, log, tail
        self.diagnosis, self.may_pass = diagnosis, may_pass
        errors = [line for line in tail if line.startswith("error: ")]
        shown = errors[-1:] or [f"  | {line}" for line in tail]
        super().__init__("\n".join([f"stage {stage} failed: {cause}", *shown, *diagnosis, f"log: {log}"]))


class GateFailed(Exception):
    """A gate failed, so the model is not exported; the message names each gate with what was measured."""


class Exit(enum.IntEnum):
    """Exit codes of commands; 129, 130, 141 and 143 stand for SIGHUP, SIGINT, SIGPIPE and SIGTERM."""

    DONE = 0
    FAILED = 1
    """A stage, a gate, a check or a search failed."""
    INVALID = 2
    """The configuration or the command line is invalid."""
    PENDING = 10
    """`plan` found work to do."""


REPORTED = (StageError, LaunchError, StoreError, StageFailed, GateFailed)
"""Exceptions that a command reports as one message and an exit code."""


def report(error: Exception) -> None:
    """Print an error on stderr, with a line for each problem of a configuration."""
    for message in error.problems if isinstance(error, ConfigError) else [error]:
        say(f"error: {message}", stderr=True)


def check_working_directory() -> None:
    """Raise ConfigError if the working directory was deleted."""
    try:
        os.getcwd()
    except OSError as error:
        reason = f"{error.strerror}: it was deleted or cannot be reached"
        raise ConfigError([Problem("working directory", None, reason, "cd to another directory")]) from error
