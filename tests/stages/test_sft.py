from collections import deque
from dataclasses import replace

import numpy as np

from pipeline.config import load
from stages.sft import batches, reached


def test_every_epoch_sees_each_row_at_most_once_in_an_order_of_its_own():
    order = batches(rows=10, size=3, seed=0)
    epochs = [np.concatenate([next(order) for _ in range(3)]) for _ in range(2)]
    for epoch in epochs:
        assert len(set(epoch)) == 9 and set(epoch) <= set(range(10))
    assert epochs[0].tolist() != epochs[1].tolist()


def test_the_seed_decides_the_order():
    assert next(batches(100, 50, seed=1)).tolist() == next(batches(100, 50, seed=1)).tolist()
    assert next(batches(100, 50, seed=1)).tolist() != next(batches(100, 50, seed=2)).tolist()


def test_one_lucky_check_does_not_stop_training():
    config = load([]).sft
    assert config.stop_accuracy == 0.5 and config.stop_checks == 3
    assert not reached(deque([0.9], maxlen=3), config)
    assert not reached(deque([0.2, 0.4, 0.59], maxlen=3), config)
    assert reached(deque([0.4, 0.5, 0.6], maxlen=3), config)
    assert not reached(deque([1.0, 1.0, 1.0], maxlen=3), replace(config, stop_accuracy=None))
