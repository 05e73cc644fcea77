"""Being told to stop: SIGINT, SIGTERM and SIGHUP all unwind the stack, so that every child is ended first."""

import multiprocessing
import os
import signal
import sys
from types import FrameType, TracebackType


class Interrupted(KeyboardInterrupt):
    """Raised where the program is when a signal arrives; carries its number."""

    def __init__(self, number: int) -> None:
        self.number = number
        super().__init__(signal.Signals(number).name)


def install() -> None:
    """Make them raise Interrupted, and end the process with 130, 143 or 129 and no traceback.

    Luigi lets KeyboardInterrupt through its own error handling, which is what stops the build.
    """
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _raise)
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # nohup
        signal.signal(signal.SIGHUP, _raise)
    sys.excepthook = _end


def leave_fork(error: KeyboardInterrupt) -> None:
    """End a fork that was interrupted and has cleaned up; Luigi forks where it has several workers.

    multiprocessing would print a traceback, and the process above tells the user already.
    """
    if multiprocessing.parent_process() is not None:
        _end(type(error), error, None)


def _raise(number: int, frame: FrameType | None) -> None:
    raise Interrupted(number)


def _end(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    if not isinstance(error, KeyboardInterrupt):
        sys.__excepthook__(kind, error, trace)
        return
    sys.stdout.flush()
    sys.stderr.flush()
    number = error.number if isinstance(error, Interrupted) else signal.SIGINT
    os._exit(128 + number)  # Python itself would end by SIGINT whatever the signal was
