"""A time limit for user functions and math-verify: a reward that hangs must not stop a training run."""

import contextlib
import faulthandler
import signal
import threading
from collections.abc import Iterator
from types import FrameType

STUCK_S = 15.0
"""Seconds after its time limit at which a call that still runs ends the process."""
AGAIN_S = 1.0


class OutOfTimeError(BaseException):
    """The time limit is exceeded. Not an Exception, so that `except Exception` can't catch it."""


@contextlib.contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raise OutOfTimeError in the block after `seconds`.

    It uses SIGALRM, so it works in the main thread only (elsewhere there is no limit) and interrupts Python
    code. A call into C, or code that catches every exception, ends the process with its traceback STUCK_S
    later.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def ring(number: int, frame: FrameType | None) -> None:
        raise OutOfTimeError(f"no result after {seconds:g} s")

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds, AGAIN_S)
    faulthandler.dump_traceback_later(seconds + STUCK_S, exit=True, file=2)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        faulthandler.cancel_dump_traceback_later()
        signal.signal(signal.SIGALRM, before)
