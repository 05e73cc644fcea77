"""A time limit for code that is not ours: a reward that hangs must not stop a training run."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType


class OutOfTimeError(BaseException):
    """The time is up. No Exception, so that a broad `except` in the limited code can't swallow it."""


@contextlib.contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raise OutOfTimeError in the block after `seconds`.

    Works by SIGALRM, hence in the main thread only (elsewhere there is no limit), and interrupts
    Python code, not a single call into C.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def ring(number: int, frame: FrameType | None) -> None:
        raise OutOfTimeError(f"no result after {seconds} s")

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
