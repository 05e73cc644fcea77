"""Operators of the network, beside the same by hand in float64."""

import mindspore as ms
import numpy as np
import pytest
from mindspore import Tensor

from stages.grpo.operators import ordered_sum, square_sum
from stages.grpo.token_logits import TokenLogits

N, H, V = 50, 20, 70_001


def by_hand(x, head, ids, of_sums, of_chosen):
    """Log-sums, chosen logits, means, and the gradients of x and head."""
    logits = x.astype(np.float64) @ head.T.astype(np.float64)
    log_sums = np.log(np.exp(logits).sum(1))
    softmax = np.exp(logits - log_sums[:, None])
    of_logits = softmax * of_sums[:, None]
    of_logits[np.arange(N), ids] += of_chosen
    chosen, means = logits[np.arange(N), ids], (softmax * logits).sum(1)
    return log_sums, chosen, means, of_logits @ head, of_logits.T @ x


def test_logits_and_gradients_by_hand():
    random = np.random.default_rng(0)
    x, head = (random.normal(size=(rows, H), scale=0.7).astype(np.float32) for rows in (N, V))
    ids = random.integers(0, 9, N).astype(np.int32)  # some of them twice
    of_sums, of_chosen = random.normal(size=(2, N)).astype(np.float32)
    cell = TokenLogits(H, V)
    weights = [Tensor(array[:, None]) for array in (of_sums, of_chosen)]

    def total(x, head, ids):
        log_sums, chosen, means, _ = cell(x, head, ids, N)
        return (log_sums * weights[0] + chosen * weights[1]).sum(), log_sums, chosen, means

    @ms.jit
    def both(x, head, ids):
        return cell(x, head, ids, N)[3], ms.value_and_grad(total, (0, 1), has_aux=True)(x, head, ids)

    left, ((_, *values), gradients) = both(*map(Tensor, (x, head, ids)))
    assert [piece.shape for piece in left] == [(16, V), (17, V), (17, V)]
    expected = by_hand(x, head, ids, of_sums, of_chosen)
    for actual, right in zip((*values, *gradients), expected, strict=True):
        np.testing.assert_allclose(actual.asnumpy().reshape(right.shape), right, rtol=1e-4, atol=1e-5)


total, squares = ms.jit(ordered_sum), ms.jit(square_sum)


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
