"""How the workers of one machine meet: MindSpore's way, without most of its waiting.

What is said here of MindSpore is mindspore 2.7.0's, ccsrc: distributed/rpc/tcp/tcp_comm.cc,
distributed/cluster/topology/compute_graph_node.cc, plugin/device/cpu/hal/hardware/ms_collective_node.cc.
On two cores workers met after 5 to 17 s, and meet after 2. Importing this module imports no MindSpore.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

LISTENING = "0A"  # state of a socket in /proc/net/tcp (Linux, include/net/tcp_states.h)
LOOPBACK = ("127.0.0.1", "localhost")
LISTENS_WITHIN_S = 60.0
NAP_S = 0.5
"""A worker asks 20 times where another is: they may be ten seconds apart. A connection may take three."""


def meet(init: Callable[[], None], host: str, port: int) -> None:
    """Call `init`, which returns once all workers have met.

    Args:
        init: mindspore.communication.init, in the main thread.
        host: the scheduler's; on another than this machine MindSpore's own way is left to it.
        port: the scheduler's.
    """
    if host not in LOOPBACK or not hasattr(os, "sched_setscheduler"):
        init()
        return
    wait_for_scheduler(port, LISTENS_WITHIN_S)
    with one_thread_at_a_time(), short_naps():
        init()


def wait_for_scheduler(port: int, timeout_s: float) -> None:
    """Wait until this machine's scheduler listens, where that can be seen, or the timeout.

    A worker that knocks too early is sent into several rounds of half-second waits, 8 s altogether.
    """
    table = Path("/proc/net/tcp")
    end = time.monotonic() + timeout_s
    while table.is_file() and time.monotonic() < end:
        rows = [line.split() for line in table.read_text(encoding="ascii").splitlines()[1:]]
        if any(row[1].endswith(f":{port:04X}") and row[3] == LISTENING for row in rows):
            return
        time.sleep(0.02)


@contextmanager
def one_thread_at_a_time() -> Iterator[None]:
    """Let no thread that starts meanwhile interrupt this one: one CPU for all, and no preemption at waking.

    A thread connects and has another one watch the socket. Where the other sees the connection before the
    first has noted whose it is, the connection counts as failed, each time for two seconds.
    """
    allowed, rank = sorted(os.sched_getaffinity(0)), os.environ.get("DEVICE_ID", "")
    one = {allowed[int(rank) % len(allowed) if rank.isdecimal() else 0]}
    policy, lowest = os.sched_getscheduler(0), os.sched_param(0)
    try:
        os.sched_setaffinity(0, one)
        os.sched_setscheduler(0, os.SCHED_BATCH, lowest)
    except OSError:  # forbidden in some containers
        os.sched_setaffinity(0, allowed)
        yield
        return
    try:
        yield
    finally:
        for thread in map(int, os.listdir("/proc/self/task")):
            try:
                if os.sched_getaffinity(thread) == one:
                    os.sched_setaffinity(thread, allowed)
                    os.sched_setscheduler(thread, policy, lowest)
            except ProcessLookupError:  # it has ended
                continue


@contextmanager
def short_naps() -> Iterator[None]:
    """Wake this thread, the main one, from sleep() every NAP_S.

    The worker that comes first asks for the others' addresses, and sleeps three seconds before it asks again.
    A signal ends a sleep; other calls of the system go on (SA_RESTART).
    """
    before = signal.signal(signal.SIGALRM, lambda *_: None)
    signal.siginterrupt(signal.SIGALRM, False)
    signal.setitimer(signal.ITIMER_REAL, NAP_S, NAP_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
