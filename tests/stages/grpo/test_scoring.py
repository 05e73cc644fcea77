"""Workers are threads here; test_workers.py has processes of them."""

import functools
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from stages.grpo.links import CHUNK, Links
from stages.grpo.scoring import score_shared
from stages.rewards.config import RewardConfig

DRAWN = iter(np.random.default_rng(0).random(1000))


def draw(completions, solutions):
    """A reward with another value at every call, and a few failures."""
    if completions[0].endswith("7"):
        raise ValueError(f"no sevens: {completions[0]} ü")
    return [float(next(DRAWN))]


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


def test_a_reward_that_draws_lots_is_the_same_on_all_workers():
    name = f"{__name__}:draw"
    config, texts = RewardConfig((name,), (2.0,), None), [str(i) for i in range(20)]
    with ThreadPoolExecutor(2) as threads:
        share = functools.partial(score_shared, config, texts, texts, np.arange(20) + 1)
        first, second = threads.map(share, range(2), worlds(2))
    np.testing.assert_array_equal(first.total, second.total)
    assert len(set(first.total.tolist())) == 19  # two failures count 0
    for actual in (first, second):
        assert actual.failures == actual.faults == {name: 2}
        assert actual.messages[name].startswith("ValueError: no sevens: 7 ü (test_scoring.py:")


def run_workers(world, work):
    """Return the results of work(links) of `world` linked workers."""

    def run(rank):
        time.sleep(0.02 * (world - rank))  # who is looked for comes last
        links = Links.connect(rank, world, Path(directory))
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
