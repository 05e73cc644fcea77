"""Workers as threads, or with a stand-in for their exchange; test_workers.py has processes of them."""

import functools
import os
import socket
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from stages.base.errors import InputError
from stages.grpo import worker
from stages.grpo.links import CHUNK, Links
from stages.grpo.scoring import score_shared
from stages.rewards.config import RewardConfig

RANKS = """
import random

def ranks(completions, solutions):
    order = sorted(completions, key=int)
    return [order.index(text) / len(order) + random.random() / 1000 for text in completions]
"""


def worlds(size):
    """Return gathers over threads in the place of workers."""
    slots, meeting = [None] * size, threading.Barrier(size)

    def gather(rank, array):
        slots[rank] = array
        meeting.wait(30)
        gathered = np.stack(slots)
        meeting.wait(30)
        return gathered

    return [SimpleNamespace(size=size, arrays=functools.partial(gather, rank)) for rank in range(size)]


def on_workers(count, config, texts):
    """Return the scores of each of `count` workers, or the error."""

    def run(rank, world):
        columns = {"prompts": texts} if rank == 0 else None
        try:
            return score_shared(config, texts, texts, np.arange(len(texts)) + 1, rank, world, columns)
        except InputError as error:
            return str(error)

    with ThreadPoolExecutor(count) as threads:
        return list(threads.map(run, range(count), worlds(count)))


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_ranks_are_those_among_the_completions_of_all_workers(users, workers):
    """A reward that draws lots is the same on all workers."""
    users(RANKS)
    config, texts = RewardConfig(("my_rewards:ranks",), (2.0,), None), [str(i) for i in range(21)]
    first, *others = on_workers(workers, config, texts)
    np.testing.assert_allclose(first.total, 2 * np.arange(21) / 21, atol=3e-3)
    for other in others:
        np.testing.assert_array_equal(first.total, other.total)
        assert other.failures == {"my_rewards:ranks": 0} and other.total.dtype == np.float32


def test_all_workers_get_the_failures_and_the_errors_of_worker_0(users):
    users(
        """
def f(completions, solutions):
    return [None if text == "7" else 1.0 for text in completions if text != "9"]

def g(completions, solutions, prompts):
    if "7" in completions:
        raise ValueError(f"no sevens: {completions[0]} ü")
    return [1.0] * len(prompts)
"""
    )
    name, texts = "my_rewards:f", [str(i) for i in range(9)]
    first, second = on_workers(2, RewardConfig((name, "my_rewards:g"), (1.0, 1.0), None), texts)
    assert first.messages == second.messages and "ü" in second.messages["my_rewards:g"]
    assert second.failures == second.faults == {name: 1, "my_rewards:g": 1}
    refused = on_workers(2, RewardConfig((name,), (1.0,), None), [*texts, "9"])
    assert refused[0] == refused[1] and "returned 9 numbers for 10 completions" in refused[1]


def run_workers(world, work):
    """Return the results of work(links) of `world` linked workers."""

    def run(rank):
        time.sleep(0.02 * (world - rank))  # who is looked for comes last
        links = Links(rank, world, Path(directory))
        try:
            return work(links)
        finally:
            for peer in links.peers.values():
                peer.close()

    with tempfile.TemporaryDirectory(dir="/tmp") as directory, ThreadPoolExecutor(world) as threads:
        return [done.result(timeout=60) for done in [threads.submit(run, rank) for rank in range(world)]]


def arrays(world, *shape):
    return [np.random.default_rng(rank).normal(size=shape).astype(np.float32) for rank in range(world)]


@pytest.mark.parametrize("world", [2, 3])
@pytest.mark.parametrize("shape", [(1,), (3, 5), (CHUNK // 4,), (3, CHUNK // 4 + 1), (0, 4)])
def test_sums_and_gathers_are_those_of_all_workers(world, shape):
    inputs, ranks = arrays(world, *shape), range(world)
    sums = run_workers(world, lambda links: links.sum(inputs[links.rank], ranks, 0))
    gathers = run_workers(world, lambda links: links.gather(inputs[links.rank], ranks, 0))
    for total, gather_rows in zip(sums, gathers, strict=True):
        np.testing.assert_array_equal(total, sum(inputs[1:], inputs[0]))  # in the order of ranks
        np.testing.assert_array_equal(gather_rows, np.concatenate(inputs))


def test_a_worker_that_has_ended_is_reported():
    def work(links):
        if links.rank:
            links.peers[0].close()
            return
        with pytest.raises(ConnectionError):
            links.gather(np.zeros(CHUNK, np.float32), (0, 1), 0)

    run_workers(2, work)


@pytest.fixture
def meeting():
    with tempfile.TemporaryDirectory(dir="/tmp") as directory:
        yield Path(directory)


@pytest.mark.parametrize(("world", "rank"), [(2, 0), (2, 1), (3, 1)])
def test_workers_that_never_connect_are_named_after_the_time_limit(world, rank, meeting):
    absent = ", ".join(str(other) for other in range(world) if other != rank)
    with pytest.raises(ConnectionError, match=f"workers {absent}, "):
        Links(rank, world, meeting, timeout_s=0.2)


def test_a_worker_that_connects_and_sends_nothing_is_named_after_the_time_limit(meeting):
    with socket.socket(socket.AF_UNIX) as silent, ThreadPoolExecutor(1) as threads:
        links = threads.submit(Links, 0, 2, meeting, timeout_s=1.0)
        while not (meeting / "0").exists():
            time.sleep(0.01)
        time.sleep(0.05)  # between bind and listen
        silent.connect(str(meeting / "0"))
        with pytest.raises(ConnectionError, match="workers 1, "):
            links.result(timeout=30)


@pytest.mark.parametrize(
    ("workers", "rank", "host", "quota", "threads", "cpus"),
    [
        ("1", "0", "127.0.0.1", "max", None, None), ("2", "1", "127.0.0.1", "max", 2, {2, 3, 6, 7}),
        ("2", "1", "127.0.0.1", "600000", 3, None), ("3", "1", "127.0.0.1", "max", 1, {1, 5}),
        ("6", "0", "127.0.0.1", "max", 1, None), ("2", "0", "203.0.113.7", "max", None, None),
    ],
)  # fmt: skip
def test_workers_of_a_machine_share_its_cores(
    monkeypatch, tmp_path, workers, rank, host, quota, threads, cpus
):
    """Eight CPUs, two of each core: 0 and 4, 1 and 5, …"""
    (tmp_path / "cpu.max").write_text(f"{quota} 100000\n")
    for cpu in range(8):
        (tmp_path / f"cpu{cpu}/topology").mkdir(parents=True)
        (tmp_path / f"cpu{cpu}/topology/thread_siblings_list").write_text(f"{cpu % 4},{cpu % 4 + 4}\n")
    bound = []
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))
    monkeypatch.setattr(os, "sched_setaffinity", lambda _, allowed: bound.append(allowed))
    monkeypatch.setattr(worker, "SYSTEM", tmp_path)
    monkeypatch.setattr(worker, "QUOTA", tmp_path / "cpu.max")
    names = {"MS_ROLE": "MS_WORKER", "MS_WORKER_NUM": workers, "RANK_ID": rank, "MS_SCHED_HOST": host}
    for name, value in names.items():
        monkeypatch.setenv(name, value)
    assert worker.take_cores() == threads
    assert bound == ([] if cpus is None else [cpus])
