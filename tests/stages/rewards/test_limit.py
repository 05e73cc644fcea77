import signal
import subprocess
import sys
import time

import pytest

from stages.rewards import limit
from stages.rewards.limit import OutOfTimeError, time_limit


def test_a_block_is_interrupted_after_its_limit():
    with pytest.raises(OutOfTimeError, match=r"0\.05 s"), time_limit(0.05):
        time.sleep(5)


def test_a_quick_block_leaves_no_alarm_and_the_old_handler():
    before = signal.getsignal(signal.SIGALRM)
    with time_limit(0.05):
        pass
    assert signal.getsignal(signal.SIGALRM) is before
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)
    time.sleep(0.1)


STUCK = """
import time
from stages.rewards import limit
limit.STUCK_S, limit.AGAIN_S = 1.0, 60.0
def never():
    while True:
        try:
            while True: time.sleep(0.01)
        except BaseException:
            pass
with limit.time_limit(0.1):
    never()
"""


def test_code_that_swallows_everything_ends_the_process_with_its_traceback():
    done = subprocess.run([sys.executable, "-c", STUCK], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert "Timeout" in done.stderr and "in never" in done.stderr


def test_an_exception_that_is_swallowed_once_is_raised_again(monkeypatch):
    monkeypatch.setattr(limit, "AGAIN_S", 0.5)
    swallowed = []
    with pytest.raises(OutOfTimeError), time_limit(0.05):
        try:
            time.sleep(5)
        except BaseException as error:
            swallowed.append(error)
        time.sleep(5)
    assert len(swallowed) == 1
