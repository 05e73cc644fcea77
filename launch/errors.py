"""Exceptions of launching: processes that could not be started, failed, or did not end."""

from pathlib import Path


class LaunchError(Exception):
    """Base class of all errors of this package."""


class ProcessFailed(LaunchError):
    """A child process ended with an exit code other than 0."""

    def __init__(self, exit_code: int, log: Path, tail: list[str]) -> None:
        self.exit_code, self.log, self.tail = exit_code, log, tail
        super().__init__(f"exit code {exit_code}, log {log}")


class ProcessTimedOut(LaunchError):
    """A child process did not end within its time limit and was stopped."""

    def __init__(self, timeout_s: float, log: Path) -> None:
        super().__init__(f"not finished after {timeout_s:.0f} s, log {log}; raise launcher.timeout_s")
