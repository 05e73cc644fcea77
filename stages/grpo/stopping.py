"""Requests to stop a training by SIGTERM or SIGUSR1, which it follows after a step, with a checkpoint.

Slurm, `grpoflow stop` and Ctrl-C send SIGTERM some seconds before SIGKILL. Before the first step has ended,
for example while graphs are compiled, the signals end the process at once: there is nothing new to save.
"""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType
from typing import Any

from stages.base.errors import Stopped

SIGNALS = (signal.SIGTERM, signal.SIGUSR1)


class StopRequest:
    """Signals that ask a training to stop; a context manager, which restores the former handlers."""

    def __init__(self) -> None:
        """Do not listen yet."""
        self._number: signal.Signals | None = None
        self._former: dict[signal.Signals, Any] = {}

    def __enter__(self) -> StopRequest:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._former.items():
            signal.signal(number, handler)

    def listen(self) -> None:
        """Note signals from now on instead of ending; call it after each step."""
        if not self._former and threading.current_thread() is threading.main_thread():
            self._former = {number: signal.signal(number, self._note) for number in SIGNALS}

    @property
    def is_noted(self) -> bool:
        """True once a signal has arrived in this process; other workers may have one that this has not."""
        return self._number is not None

    def stopped(self, step: int) -> Stopped:
        """Return the exception that ends the stage after `step`, whose checkpoint is complete."""
        number = self._number or signal.SIGTERM  # of another worker
        return Stopped(number, f"stopped by {number.name} after step {step}, with a checkpoint")

    def _note(self, number: int, frame: FrameType | None) -> None:
        self._number = signal.Signals(number)
