import signal
import threading
import time

import pytest

from stages.rewards.limit import OutOfTimeError, time_limit


def test_a_block_that_takes_too_long_is_left():
    with pytest.raises(OutOfTimeError, match=r"0\.05 s"), time_limit(0.05):
        time.sleep(5)


def test_a_quick_block_leaves_no_alarm_and_the_old_handler():
    before = signal.getsignal(signal.SIGALRM)
    with time_limit(0.05):
        pass
    assert signal.getsignal(signal.SIGALRM) is before
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)
    time.sleep(0.1)


def test_other_threads_run_without_limit():
    done = []

    def work():
        with time_limit(0.01):
            time.sleep(0.05)
            done.append(True)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert done == [True]
