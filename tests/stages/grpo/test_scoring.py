import sys
import threading
import types

import numpy as np
import pytest

from stages.grpo.scoring import score_shared
from stages.rewards.config import RewardConfig
from stages.rewards.score import user_function


class World:
    """Gathers over threads in the place of workers."""

    def __init__(self, size):
        self.size, self.slots, self.meeting = size, [None] * size, threading.Barrier(size)

    def of(self, rank):
        def arrays(array):
            self.slots[rank] = array
            self.meeting.wait(30)
            gathered = np.stack(self.slots)
            self.meeting.wait(30)
            return gathered

        return types.SimpleNamespace(size=self.size, arrays=arrays)


@pytest.fixture
def drawing(monkeypatch):
    """A reward that gives another value at every call, and a few failures."""
    drawn = iter(np.random.default_rng(0).random(1000))
    module = types.ModuleType("my_draws")

    def draw(completions, solutions):
        if completions[0].endswith("7"):
            raise ValueError(f"no sevens: {completions[0]} ü")
        return [float(next(drawn))]

    module.draw = draw
    monkeypatch.setitem(sys.modules, "my_draws", module)
    user_function.cache_clear()
    yield "my_draws:draw"
    user_function.cache_clear()


def shared(config, texts, size):
    """Return the share of each worker."""
    world, actual = World(size), {}
    lengths = np.arange(len(texts)) + 1

    def work(rank):
        actual[rank] = score_shared(config, texts, texts, lengths, rank, world.of(rank))

    threads = [threading.Thread(target=work, args=(rank,)) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    return [actual[rank] for rank in range(size)]


def test_a_reward_that_draws_lots_is_the_same_on_all_workers(drawing):
    config = RewardConfig((drawing,), (2.0,), None)
    texts = [str(i) for i in range(20)]
    first, second = shared(config, texts, 2)
    np.testing.assert_array_equal(first.total, second.total)
    assert len(set(first.total.tolist())) == 19  # two failures count 0
    for actual in (first, second):
        assert actual.failures == actual.faults == {drawing: 2}
        assert actual.messages[drawing].startswith("ValueError: no sevens: 7 ü (test_scoring.py:")
