import math

import mindspore as ms
import numpy as np
import pytest
from mindspore import Tensor

from stages.grpo.operators import ordered_sum, square_sum

total, squares = ms.jit(ordered_sum), ms.jit(square_sum)


@pytest.mark.parametrize("shape", [(), (1,), (1024,), (1025,), (3, 700), (1_100_000,)])
def test_is_the_sum(shape):
    x = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    expected = math.fsum(x.reshape(-1).tolist())
    assert float(total(Tensor(x)).asnumpy()) == pytest.approx(expected, abs=1e-6 * max(1, np.abs(x).sum()))


def test_is_the_same_to_the_last_bit_every_time():
    """A plain sum of so many numbers comes out in two ways or more (mindspore 2.7.0, CPU)."""
    x = Tensor(np.random.default_rng(0).normal(size=200_000).astype(np.float32))
    assert len({float(total(x).asnumpy()) for _ in range(200)}) == 1


@pytest.mark.parametrize("shape", [(1,), (1025,), (3, 700), (2000, 3), (1500, 96)])
def test_sum_of_squares_and_the_same_to_the_last_bit_every_time(shape):
    x = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    actual = {float(squares(Tensor(x)).asnumpy()) for _ in range(50)}
    assert len(actual) == 1
    assert actual.pop() == pytest.approx(np.square(x, dtype=np.float64).sum(), rel=1e-6)
