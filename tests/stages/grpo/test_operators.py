import math

import mindspore as ms
import numpy as np
import pytest
from mindspore import Parameter, Tensor, nn, ops

from stages.grpo.operators import Cut, Lookup, ordered_sum, softmax, square_sum


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_parts_are_neighbours_and_their_gradients_lie_side_by_side(axis):
    x = np.random.default_rng(0).standard_normal((6, 7, 5)).astype(np.float32)
    sizes = (1, x.shape[axis] - 3, 2)
    paths = np.cumsum(sizes)[:-1]
    cut = Cut(axis)
    factors = (2.0, 0.0, 5.0)  # the middle part is not used

    @ms.jit
    def loss(x):
        first, _, last = cut(x, sizes)
        return (first * 2.0).sum() + (last * 5.0).sum()

    @ms.jit
    def parts(x):
        return cut(x, sizes)

    for part, expected in zip(parts(ms.Tensor(x)), np.split(x, paths, axis), strict=True):
        np.testing.assert_array_equal(part.asnumpy(), expected)
    expected = [np.full_like(p, f) for p, f in zip(np.split(x, paths, axis), factors, strict=True)]
    np.testing.assert_array_equal(ms.grad(loss)(ms.Tensor(x)).asnumpy(), np.concatenate(expected, axis))


class Tied(nn.Cell):
    """A model of an embedding and a head that is the same weight."""

    def __init__(self, table):
        super().__init__()
        self.embedding, self.lookup = Parameter(Tensor(table), name="embedding"), Lookup()

    def construct(self, ids):
        x, head = self.lookup(self.embedding, ids)
        return (ops.matmul(x, head.T) ** 2).sum()


def test_a_tied_head_and_its_embedding_have_one_gradient_that_follows_updates():
    H = 4
    table = np.random.default_rng(0).normal(size=(9, H)).astype(np.float32)
    ids = np.array([3, 5, 3, 8], np.int32)
    model = Tied(table)
    gradient = ms.jit(ms.grad(model, None, model.embedding))
    for factor in (1, 2):
        model.embedding.set_data(Tensor(table * factor))
        logits = table[ids] @ table.T
        expected = 2 * logits.T @ table[ids]
        np.add.at(expected, ids, 2 * logits @ table)
        np.testing.assert_allclose(
            gradient(Tensor(ids)).asnumpy(), expected * factor**3, rtol=1e-4, atol=1e-4
        )


def test_the_gradient_of_shares_is_that_of_mindspore_s_own():
    random = np.random.default_rng(0)
    x, factor = (Tensor(random.normal(size=(3, 4, 7)).astype(np.float32)) for _ in range(2))

    def ours(x):
        return (softmax(x) * factor).sum()

    def theirs(x):
        return (ops.softmax(x, -1) * factor).sum()

    actual, expected = (ms.jit(ms.value_and_grad(function))(x) for function in (ours, theirs))
    for item, second in zip(actual, expected, strict=True):
        np.testing.assert_allclose(item.asnumpy(), second.asnumpy(), rtol=1e-5, atol=1e-6)


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
