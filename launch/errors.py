"""Exceptions of launching: processes that could not be started, failed, or did not end."""

from pathlib import Path


class LaunchError(Exception):
    """A job cannot be started, hangs, takes too long or fails."""


class ProcessFailed(LaunchError):
    """A child process ended with an exit code other than 0."""

    def __init__(self, exit_code: int, log: Path, tail: list[str]) -> None:
        self.exit_code, self.log, self.tail = exit_code, log, tail
        super().__init__(f"exit code {exit_code}, log {log}")
