"""Exceptions that stages raise on purpose, with path, value, rule and remedy."""

import signal
from collections.abc import Sequence
from dataclasses import dataclass

from stages.base.redact import redacted

Fault = tuple[str, str] | None
"""Rule that is broken and remedy; None if the rule holds."""


@dataclass(frozen=True)
class Problem:
    """One broken rule, with all that a user needs to correct it."""

    path: str
    """Location: a config key (`layout.train.model_parallel`), a file, or file:line."""
    value: object
    rule: str
    """Rule that the value breaks."""
    remedy: str = ""
    source: str = ""
    """File of the program, or paper, that the rule follows from; "ours: FILE" names a file of grpoflow."""

    def __str__(self) -> str:
        value = "" if self.value is None else f"={self.value}"
        source = f" ({self.source})" if self.source else ""
        remedy = f"; {self.remedy}" if self.remedy else ""
        return str(redacted(f"{self.path}{value}: {self.rule}{source}{remedy}"))


def as_override(value: object) -> str:
    """Return a value as it would be typed in an override, for a remedy."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    return "[]" if value == () else str(value)


class StageError(Exception):
    """Base class of errors that stages raise on purpose; ends a stage with exit code 1."""


class InputError(StageError):
    """A file, directory or artifact is missing, malformed or does not fit."""

    def __init__(self, path: object, value: object, rule: str, remedy: str = "") -> None:
        self.problem = Problem(str(path), value, rule, remedy)
        super().__init__(str(self.problem))


class ConfigError(StageError):
    """A configuration breaks one or more rules; all of them are listed, not only the first."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))


class Stopped(StageError):
    """A signal asked the stage to stop, and it has saved its work; the next attempt resumes from it."""

    def __init__(self, number: signal.Signals, message: str) -> None:
        self.exit_code = 128 + number
        """As of a process that the signal has ended."""
        super().__init__(message)
