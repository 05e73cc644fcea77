"""One update is the same however its batch is cut, padded or rewarded beyond a constant."""

import numpy as np
import pytest

from stages.grpo.algorithm import grpo
from stages.grpo.collectives import Groups
from stages.grpo.learner import Learner
from stages.grpo.loss import PolicyLoss, token_weights
from stages.grpo.model import Qwen2
from stages.grpo.parallel import SINGLE
from stages.grpo.parameters import fuse
from tests.stages.grpo import small
from tests.stages.grpo.test_loss import train_config

MODEL = small.model_config()
P, S, G, T, WIDER = 4, 6, 4, 7, 5
# With so large an epsilon AdamW's first update is the gradient itself, and nothing is blown up.
CONFIG = train_config(adam_epsilon=1e3, max_grad_norm=None, learning_rate=1e3)


def batch(random, rewards):
    """prompt, length, completion, old, reference, advantage, weight, mask: [P, ...] each."""
    prompt, length = small.prompts(MODEL, P, S)
    completion = random.integers(2, MODEL.vocab_size, (P, G, T)).astype(np.int32)
    mask = (np.arange(T) < random.integers(1, T + 1, (P, G, 1))).astype(np.float32)
    old, reference = (random.normal(-5, 0.5, (P, G, T)).astype(np.float32) for _ in range(2))
    advantage = grpo.group_advantages(rewards, scale=True)[..., None]
    weight = token_weights(mask.reshape(P * G, T), "grpo", T).reshape(P, G, T)
    return [prompt, length, completion, old, reference, advantage, weight, mask]


def updated(arrays, parts):
    """Gradient norm, loss's sums and weights after one update on so many micro-batches."""
    model = Qwen2(MODEL, positions=S + T + 2 * WIDER)
    model.load(fuse(MODEL, small.weights(MODEL)))
    learner = Learner(model, PolicyLoss(CONFIG), CONFIG, SINGLE, Groups(1), [False] * len(model.names), 1.0)
    pieces = zip(*(np.split(array, parts) for array in arrays), strict=True)
    cut = [[*piece[:3], *(one.reshape(-1, one.shape[-1]) for one in piece[3:])] for piece in pieces]
    sums, norm, _ = learner.update(cut)
    return norm, sums.reshape(P, G, -1), model.weights()


def assert_same(found, wanted):
    assert found[0] == pytest.approx(wanted[0], rel=1e-5)
    np.testing.assert_allclose(found[1], wanted[1], rtol=1e-5, atol=1e-5)
    for name, array in wanted[2].items():
        np.testing.assert_allclose(found[2][name], array, rtol=0, atol=1e-6 * wanted[0], err_msg=name)


@pytest.fixture(scope="module")
def case():
    random = np.random.default_rng(3)
    rewards = random.integers(0, 8, (P, G)) / 8
    return batch(random, rewards), rewards


@pytest.fixture(scope="module")
def whole(case):
    result = updated(case[0], 1)
    start = fuse(MODEL, small.weights(MODEL))
    assert max(np.abs(array - start[name]).max() for name, array in result[2].items()) > 0.05  # it moves
    return result


def test_micro_batches_change_nothing(case, whole):
    assert_same(updated(case[0], 4), whole)


def test_padding_changes_nothing(case, whole):
    """Wider prompts and completions, filled with ids and numbers that mean something elsewhere."""
    wider = [
        np.pad(array, [(0, 0)] * (array.ndim - 1) + [(0, WIDER)], constant_values=value)
        for array, value in zip(case[0], (50, None, 50, 3.0, -3.0, None, 0.0, 0.0), strict=True)
        if value is not None
    ]
    prompt, completion, old, reference, weight, mask = wider
    arrays = [prompt, case[0][1], completion, old, reference, case[0][5], weight, mask]
    assert_same(updated(arrays, 1), whole)


def test_a_constant_added_to_a_group_s_rewards_changes_nothing(case, whole):
    shifted = grpo.group_advantages(case[1] + np.array([[5.0], [-2.0], [0.5], [100.0]]), scale=True)
    arrays = [*case[0][:5], shifted[..., None], *case[0][6:]]
    assert_same(updated(arrays, 1), whole)
    other = [*case[0][:5], 1.1 * shifted[..., None], *case[0][6:]]
    with pytest.raises(AssertionError):
        assert_same(updated(other, 1), whole)
