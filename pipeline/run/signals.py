"""Signal handling: SIGINT, SIGTERM and SIGHUP raise an exception, so that child processes are ended first."""

import ctypes
import multiprocessing
import os
import signal
import sys
from types import FrameType, TracebackType

PR_SET_PDEATHSIG = 1  # linux/prctl.h


class Interrupted(KeyboardInterrupt):
    """Exception that a signal raises in the main thread; it contains the signal's number."""

    def __init__(self, number: int) -> None:
        self.number = number
        super().__init__(signal.Signals(number).name)


def install() -> None:
    """Install handlers that raise Interrupted; the exit code is then 130, 143 or 129, without a traceback.

    Interrupted is a KeyboardInterrupt because Luigi's error handling does not catch that.
    """
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, raise_interrupted)
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # nohup
        signal.signal(signal.SIGHUP, raise_interrupted)
    sys.excepthook = _end


def in_fork() -> bool:
    """Return True in a fork of Luigi, which has several workers."""
    return multiprocessing.parent_process() is not None


def leave_fork(error: KeyboardInterrupt) -> None:
    """End an interrupted fork after its cleanup; Luigi forks if it has several workers.

    Without this, multiprocessing would print a traceback; the parent process reports the interruption.
    """
    if in_fork():
        _end(type(error), error, None)


def end_with_parent() -> None:
    """Let a fork of Luigi receive SIGTERM when its parent dies, even by SIGKILL."""
    parent = multiprocessing.parent_process()
    if parent is None or not sys.platform.startswith("linux"):
        return
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent.pid:  # the parent died before the call
        os.kill(os.getpid(), signal.SIGTERM)


def raise_interrupted(number: int, frame: FrameType | None) -> None:
    """Raise Interrupted; a handler for signal.signal."""
    raise Interrupted(number)


def _end(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    if not isinstance(error, KeyboardInterrupt):
        sys.__excepthook__(kind, error, trace)
        return
    sys.stdout.flush()
    sys.stderr.flush()
    number = error.number if isinstance(error, Interrupted) else signal.SIGINT
    os._exit(128 + number)  # Python would use SIGINT for every KeyboardInterrupt
