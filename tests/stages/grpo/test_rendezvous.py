import ctypes
import os
import signal
import threading

import pytest

from stages.grpo import rendezvous


@pytest.fixture
def everyone_listens(monkeypatch):
    monkeypatch.setattr(rendezvous, "wait_for_scheduler", lambda port, timeout_s: None)
    monkeypatch.setenv("DEVICE_ID", "1")


def state():
    return os.sched_getaffinity(0), os.sched_getscheduler(0), signal.getsignal(signal.SIGALRM)


def test_workers_meet_on_one_cpu_and_nothing_of_it_stays(everyone_listens):
    before, threads, leave = state(), [], threading.Event()

    def init():
        threads.append(threading.Thread(target=leave.wait))
        threads[0].start()
        threads.append((os.sched_getaffinity(threads[0].native_id), os.sched_getscheduler(0)))
        threads.append(ctypes.CDLL(None).sleep(60))  # seconds that were left of it

    rendezvous.meet(init, "127.0.0.1", 1)
    thread, (cpus, policy), left = threads
    own = os.sched_getaffinity(thread.native_id), os.sched_getscheduler(thread.native_id)
    leave.set()
    assert len(cpus) == 1 and policy == os.SCHED_BATCH and left > 50
    assert own == before[:2] and state() == before
    assert signal.getitimer(signal.ITIMER_REAL) == (0, 0)


def test_a_failure_leaves_nothing_behind_either(everyone_listens):
    before = state()

    def init():
        raise RuntimeError("nobody came")

    with pytest.raises(RuntimeError, match="nobody came"):
        rendezvous.meet(init, "localhost", 1)
    assert state() == before


def test_where_scheduling_may_not_be_changed_workers_meet_all_the_same(everyone_listens, monkeypatch):
    def refuse(*_):
        raise PermissionError

    before, met = state(), []
    monkeypatch.setattr(os, "sched_setscheduler", refuse)
    rendezvous.meet(lambda: met.append(os.sched_getaffinity(0)), "127.0.0.1", 1)
    assert met == [before[0]] and state() == before


def test_workers_of_several_machines_meet_in_mindspores_way():
    met = []
    rendezvous.meet(lambda: met.append(os.sched_getscheduler(0)), "203.0.113.7", 1)
    assert met == [os.sched_getscheduler(0)] and met != [os.SCHED_BATCH]
