"""Updates that leave out completions without a gradient, beside updates that compute all of them."""

import mindspore as ms
import numpy as np
import pytest

from stages.grpo.batch import Batch
from stages.grpo.collectives import Groups
from stages.grpo.learner import Learner
from stages.grpo.loss import PolicyLoss, token_weights, without_gradient
from stages.grpo.model import CausalLM
from stages.grpo.parallel import SINGLE
from stages.grpo.parameters import fuse
from tests.stages.grpo import small

P, S, G, T, PARTS = 6, 5, 3, 7, 3
SETTINGS = {"beta": 0.0, "weight_decay": 0.1, "max_grad_norm": None, "num_iterations": 1}
CASES = {
    "groups and single completions": ({"loss_type": "dapo"}, [[0, 1, -1], [0, 0, 0], [1, 0, -1], [0, 0, 0],
                                                              [0, 0, 0], [2, -1, -1]]),
    "one ratio per completion": ({"loss_type": "grpo", "importance_sampling_level": "sequence",
                                  "num_iterations": 2}, [[0, 1, -1], *[[0, 0, 0]] * 5]),
    "cispo": ({"loss_type": "cispo", "num_iterations": 2}, [*[[0, 0, 0]] * 5, [1, -1, 0]]),
    "none is left": ({"loss_type": "dr_grpo"}, [[0, 0, 0]] * 6),
}  # fmt: skip


def make_batch(config, advantages, longest=None):
    """`longest`: tokens of each prompt's longest completion; None: random."""
    model, random = small.model_config(), np.random.default_rng(1)
    prompt, length = small.prompts(model, P, S)
    tokens = random.integers(1, T + 1, (P, G)).astype(np.int32)
    tokens[0, 0] = T
    if longest is not None:
        tokens = np.minimum(tokens, np.array(longest, np.int32)[:, None])
        tokens[:, 1] = longest
    mask = (np.arange(T) < tokens[..., None]).astype(np.float32).reshape(P * G, T)
    ids = random.integers(2, model.vocab_size, (P, G, T)).astype(np.int32)
    old = (-4 + 0.3 * random.normal(size=mask.shape)).astype(np.float32)
    advantage = np.array(advantages, np.float32).reshape(-1, 1)
    weight = token_weights(mask, config.loss_type, T)
    return Batch(prompt, length, ids, weight, mask, advantage, old, np.zeros_like(mask), tokens)


def make_learner(config):
    model = small.model_config()
    network = CausalLM(model, S + T)
    network.load(fuse(model, small.weights(model)))
    split = [False] * len(network.names)
    return Learner(network, PolicyLoss(config), config, SINGLE, Groups(1), split, 1.0)


def after(learner, batch):
    """Adam's first moment after an update, which is a tenth of the gradient, the weights, and its numbers."""
    update = learner.update(batch, batch.micro_batches(SINGLE, PARTS))
    moment = np.concatenate([moment.asnumpy().ravel() for moment in learner.optimizer.m])
    return moment, learner.model.weights(), update


@pytest.mark.parametrize("name", CASES)
def test_the_gradient_is_the_same_without_them(name):
    settings, advantages = CASES[name]
    config = small.train_config(**{**SETTINGS, **settings})
    batch = make_batch(config, advantages)
    left_out = without_gradient(config, batch.advantage_B1.reshape(-1), batch.mask_BT)
    np.testing.assert_array_equal(left_out, batch.advantage_B1.reshape(-1) == 0)
    reduced = batch.without(left_out)
    groups = (np.array(advantages) != 0).any(1).sum()
    assert len(reduced.micro_batches(SINGLE, PARTS)) == -(-groups // (P // PARTS)) < PARTS
    moment, weights, update = after(make_learner(config), batch)
    reduced_moment, reduced_weights, reduced_update = after(make_learner(config), reduced)
    # sums over other batches are rounded otherwise: float32 has a precision of 1.2e-7
    np.testing.assert_allclose(reduced_moment, moment, rtol=0, atol=5e-7 * np.linalg.norm(moment))
    if name == "none is left":  # Adam divides what is 0 but for rounding by its own size
        for key, whole in weights.items():
            np.testing.assert_array_equal(reduced_weights[key], whole)
    assert reduced_update.grad_norm == pytest.approx(update.grad_norm, rel=1e-6, abs=1e-7)
    assert update.grad_norm > 0.01 or name == "none is left"
    loss = [item.sums_PK[:, PolicyLoss.sums.index("loss")].sum() for item in (update, reduced_update)]
    assert loss[0] == pytest.approx(loss[1], rel=1e-5, abs=1e-7)
    policies = [item.logprobs_PGT.reshape(P * G, T) * batch.mask_BT for item in (update, reduced_update)]
    np.testing.assert_allclose(policies[1][~left_out], policies[0][~left_out], rtol=1e-6, atol=1e-6)


def test_another_denominator_would_be_seen():
    settings, advantages = CASES["groups and single completions"]
    config = small.train_config(**{**SETTINGS, **settings})
    batch = make_batch(config, advantages)
    reduced = batch.without(batch.advantage_B1.reshape(-1) == 0)
    wrong = Batch(**{**vars(reduced), "weight_BT": token_weights(reduced.mask_BT, config.loss_type, T)})
    norms = [
        make_learner(config).update(item, item.micro_batches(SINGLE, PARTS)).grad_norm
        for item in (reduced, wrong)
    ]
    assert norms[1] > 1.5 * norms[0]


@pytest.mark.parametrize("settings", [{"beta": 0.1}, {"beta": 0.0, "entropy_coeff": 0.1}])
def test_nothing_is_left_out_if_another_term_has_a_gradient(settings):
    config = small.train_config(**settings)
    assert not without_gradient(config, np.zeros(4), np.ones((4, 2))).any()
    assert without_gradient(small.train_config(beta=0.0), np.zeros(4), np.ones((4, 2))).all()
    masked = np.array([[1, 0], [0, 0]])
    np.testing.assert_array_equal(
        without_gradient(small.train_config(beta=0.0), np.ones(2), masked), [False, True]
    )


def test_micro_batches_are_unchanged_if_every_prompt_has_tokens():
    batch = make_batch(small.train_config(), [[1, 0, 0]] * P)
    for micro, expected in zip(
        batch.micro_batches(SINGLE, PARTS), np.arange(P * G).reshape(PARTS, -1, G), strict=True
    ):
        np.testing.assert_array_equal(micro.completion_nC, expected)
        np.testing.assert_array_equal(micro.prompt_n, expected[:, 0] // G)
    assert ms.get_context("device_target") == "CPU"
