"""One update is the same however its batch is cut, padded or rewarded beyond a constant."""

from dataclasses import replace

import numpy as np
import pytest
from mindspore import ops

from stages.grpo.algorithm import grpo
from stages.grpo.batch import Batch
from stages.grpo.collectives import Groups
from stages.grpo.learner import Learner
from stages.grpo.loss import PolicyLoss, token_weights
from stages.grpo.model import CausalLM
from stages.grpo.parallel import SINGLE
from stages.grpo.parameters import fuse
from tests.stages.grpo import small
from tests.stages.grpo.test_loss import train_config

MODEL = small.model_config(num_hidden_layers=1)
P, S, G, T, WIDER = 4, 6, 4, 7, 5
# With so large an epsilon AdamW's first update is the gradient itself, and nothing is blown up.
CONFIG = train_config(adam_epsilon=1e3, max_grad_norm=None, learning_rate=1e3)


def make_batch(random, rewards):
    prompt, length = small.prompts(MODEL, P, S)
    completion = random.integers(2, MODEL.vocab_size, (P, G, T)).astype(np.int32)
    mask = (np.arange(T) < random.integers(1, T + 1, (P, G, 1))).astype(np.float32).reshape(P * G, T)
    old, reference = (random.normal(-5, 0.5, (P * G, T)).astype(np.float32) for _ in range(2))
    return Batch(prompt, length, completion, token_weights(mask, "grpo", T), mask, advantages(rewards), old,
                 reference)  # fmt: skip


def advantages(rewards):
    return grpo.group_advantages(rewards, scale=True).reshape(-1, 1)


def make_learner():
    network = CausalLM(MODEL, positions=S + T + 2 * WIDER)
    split = [False] * len(network.names)
    return Learner(network, PolicyLoss(CONFIG), CONFIG, SINGLE, Groups(1), split, 1.0)


@pytest.fixture(scope="module")
def learner():
    return make_learner()


def updated(learner, batch, parts):
    """Gradient norm, loss's sums and weights after a first update on so many micro-batches."""
    network, learner.updates = learner.model, 0
    network.load(fuse(MODEL, small.weights(MODEL)))
    for moment in (*learner.optimizer.m, *learner.optimizer.v):
        moment.set_data(ops.zeros_like(moment))
    update = learner.update(batch, batch.micro_batches(SINGLE, parts))
    return update.grad_norm, update.sums, network.weights()


def assert_same(actual, expected):
    assert actual[0] == pytest.approx(expected[0], rel=1e-5)
    for name, sums_P in expected[1].items():
        np.testing.assert_allclose(actual[1][name], sums_P, rtol=1e-5, atol=1e-5, err_msg=name)
    for name, array in expected[2].items():
        np.testing.assert_allclose(actual[2][name], array, rtol=0, atol=1e-6 * expected[0], err_msg=name)


@pytest.fixture(scope="module")
def case():
    random = np.random.default_rng(3)
    rewards = random.integers(0, 8, (P, G)) / 8
    return make_batch(random, rewards), rewards


@pytest.fixture(scope="module")
def expected(learner, case):
    result = updated(learner, case[0], 1)
    start = fuse(MODEL, small.weights(MODEL))
    assert max(np.abs(array - start[name]).max() for name, array in result[2].items()) > 0.05  # it moves
    return result


def test_micro_batches_change_nothing(learner, case, expected):
    assert_same(updated(learner, case[0], 4), expected)


def test_packing_changes_nothing(learner, case, expected):
    tokens_PG = case[0].mask_BT.sum(1).astype(np.int32).reshape(P, G)
    assert_same(updated(learner, replace(case[0], tokens_PG=tokens_PG), 2), expected)


def test_padding_changes_nothing(learner, case, expected):
    """Wider prompts and completions, filled with ids and numbers that mean something elsewhere."""
    filled = {"prompt_PS": 50, "completion_PGT": 50, "old_logprobs_BT": -300.0, "ref_logprobs_BT": 300.0,
              "weight_BT": 0.0, "mask_BT": 0.0}  # fmt: skip
    wider = {}
    for name, value in filled.items():
        array = getattr(case[0], name)
        wider[name] = np.pad(array, [(0, 0)] * (array.ndim - 1) + [(0, WIDER)], constant_values=value)
    assert_same(updated(learner, replace(case[0], **wider), 1), expected)


def test_a_constant_added_to_a_group_s_rewards_changes_nothing(learner, case, expected):
    shifted = advantages(case[1] + np.array([[5.0], [-2.0], [0.5], [100.0]]))
    assert_same(updated(learner, replace(case[0], advantage_B1=shifted), 1), expected)
    with pytest.raises(AssertionError):
        assert_same(updated(learner, replace(case[0], advantage_B1=1.1 * shifted), 1), expected)
