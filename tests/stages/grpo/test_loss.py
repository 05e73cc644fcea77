"""Losses and operators of the network, beside the same by hand in float64."""

import mindspore as ms
import numpy as np
import pytest
from mindspore import Tensor

from stages.grpo.loss import PolicyLoss, SupervisedLoss, token_weights
from stages.grpo.operators import ordered_sum, square_sum
from stages.grpo.token_logits import TokenLogits
from tests.stages.grpo.small import train_config

MASK = np.array([[1, 1, 1, 0], [1, 0, 0, 0]], np.float32)


def by_hand(config, logprob, old, reference, advantage, weight):
    """The formulas of DeepSeekMath, one token at a time."""
    loss = kl_sum = 0.0
    clipped = [0, 0]
    for i, t in zip(*np.nonzero(MASK), strict=True):
        ratio = np.exp(logprob[i, t] - old[i, t])
        bounded = min(max(ratio, 1 - config.epsilon_low), 1 + config.epsilon_high)
        surrogate = min(ratio * advantage[i], bounded * advantage[i])
        r = np.exp(reference[i, t] - logprob[i, t])
        kl = r - np.log(r) - 1
        loss += weight[i, t] * (-surrogate + config.beta * kl)
        kl_sum += kl
        if bounded * advantage[i] < ratio * advantage[i]:
            clipped[int(bounded < ratio)] += 1  # too high, else too low
    return loss, kl_sum, clipped


def test_grpo_loss_and_its_sums_by_hand():
    config = train_config()
    random = np.random.default_rng(0)
    logprob, old, reference = (random.normal(-1, 0.4, (2, 4)).astype(np.float32) for _ in range(3))
    entropy, advantage = np.abs(logprob), np.array([1.5, -0.5], np.float32)
    weight = token_weights(MASK, "grpo", 4)
    arguments = [Tensor(x) for x in (entropy, old, reference, advantage[:, None], weight, MASK)]
    loss, sums = PolicyLoss(config)(Tensor(logprob), *arguments)
    expected, kl, clipped = by_hand(config, logprob, old, reference, advantage, weight)
    assert sum(clipped) > 0  # the case must reach the clipped branch
    np.testing.assert_allclose(loss.asnumpy(), expected, rtol=1e-5)
    by_hand_sums = [expected, kl, (entropy * MASK).sum(), *clipped]
    np.testing.assert_allclose(sums.asnumpy().sum(0), by_hand_sums, rtol=1e-5, atol=1e-6)


def test_supervised_loss_is_the_mean_negative_logprob():
    logprob = np.log(np.array([[0.5, 0.25, 0.125, 1.0], [0.1, 1.0, 1.0, 1.0]], np.float32))
    loss, _ = SupervisedLoss()(Tensor(logprob), Tensor(logprob), Tensor(token_weights(MASK, "dapo", 4)))
    np.testing.assert_allclose(loss.asnumpy(), -np.log(0.5 * 0.25 * 0.125 * 0.1) / 4, rtol=1e-6)


N, H, V = 50, 20, 70_001


def logits_by_hand(x, head, ids, of_sums, of_chosen):
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
    expected = logits_by_hand(x, head, ids, of_sums, of_chosen)
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
