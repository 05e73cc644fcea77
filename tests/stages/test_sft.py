import numpy as np

from stages.sft import batches


def test_every_epoch_sees_each_row_at_most_once_in_an_order_of_its_own():
    order = batches(rows=10, size=3, seed=0)
    epochs = [np.concatenate([next(order) for _ in range(3)]) for _ in range(2)]
    for epoch in epochs:
        assert len(set(epoch)) == 9 and set(epoch) <= set(range(10))
    assert epochs[0].tolist() != epochs[1].tolist()


def test_the_seed_decides_the_order():
    assert next(batches(100, 50, seed=1)).tolist() == next(batches(100, 50, seed=1)).tolist()
    assert next(batches(100, 50, seed=1)).tolist() != next(batches(100, 50, seed=2)).tolist()
