"""Exceptions of launching: processes that could not be started, failed, or did not end."""

from pathlib import Path


class LaunchError(Exception):
    """Base class of all errors of this package."""


class EnvironmentProblem(LaunchError):
    """A package that a child process needs is missing or of a version known to break."""


class ProcessFailed(LaunchError):
    """A child process ended with an exit code other than 0."""

    def __init__(self, exit_code: int, log: Path, tail: list[str]) -> None:
        self.exit_code, self.log, self.tail = exit_code, log, tail
        super().__init__(f"exit code {exit_code}, log {log}")


class ProcessTimedOut(LaunchError):
    """A child process did not end within its time limit and was stopped."""

    def __init__(self, timeout_s: float, log: Path) -> None:
        super().__init__(f"not finished after {timeout_s:.0f} s, log {log}; raise launcher.timeout_s")


class ProcessSilent(LaunchError):
    """No worker wrote a line for too long; the run counts as hung and was stopped."""

    def __init__(self, silence_s: float, logs: Path) -> None:
        super().__init__(
            f"hung: no worker wrote a line for {silence_s:.0f} s, logs {logs}; "
            "raise engine.silence_timeout_s if that is normal here"
        )
