from dataclasses import asdict

import numpy as np
from mindspore import Tensor

from stages.base.reader import read
from stages.grpo.config import TrainConfig
from stages.grpo.loss import PolicyLoss, SupervisedLoss, token_weights
from tests.stages.weights.checkpoints import tiny

MASK = np.array([[1, 1, 1, 0], [1, 0, 0, 0]], np.float32)


def train_config(**changes):
    values = {
        "steps": 4, "learning_rate": 1e-3, "schedule": "constant", "warmup_steps": 0, "final_share": 1.0,
        "adam_beta2": 0.95, "prompts_per_step": 2, "num_iterations": 2, "epsilon_high": 0.3, "beta": 0.1,
    }  # fmt: skip
    return read(TrainConfig, {**asdict(tiny().train), **values, **changes})


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
