"""Buckets, and that the loss, the gradient and log-probabilities do not depend on them."""

import mindspore as ms
import numpy as np
import pytest

from stages.grpo import buckets as module
from stages.grpo.buckets import buckets, halved
from stages.grpo.collectives import Gather
from stages.grpo.learner import Objective, tensors
from stages.grpo.logprobs import LogProbs
from stages.grpo.loss import SupervisedLoss
from stages.grpo.model import Qwen2
from stages.grpo.parallel import SINGLE, Place
from stages.grpo.parameters import fuse
from stages.grpo.setup import RoleModel
from stages.layout import RoleLayout
from tests.stages.grpo import small


def test_short_completions_come_together_and_all_workers_agree_on_slots():
    lengths = np.array([[90, 3], [5, 5], [8, 70], [1, 30], [40, 2], [128, 1], [7, 9], [65, 4]])
    parts = [buckets(lengths, 128, Place(2, worker, 1, 0), 2) for worker in (0, 1)]
    assert [part.rows.tolist() for part in parts[0]] == [[1, 3], [2, 0]]
    assert [part.rows.tolist() for part in parts[1]] == [[6, 4], [7, 5]]
    assert [part.slots for part in parts[0]] == [part.slots for part in parts[1]] == [64, 128]


@pytest.mark.parametrize(
    ("slots", "tokens", "wanted"),
    [(1024, 1024, 1024), (1024, 513, 1024), (1024, 512, 512), (1024, 1, 64), (100, 1, 100), (28, 2, 28)],
)
def test_slots_are_halved_while_tokens_fit(slots, tokens, wanted):
    assert halved(slots, tokens) == wanted


def test_loss_gradient_and_logprobs_are_those_without_buckets(monkeypatch):
    monkeypatch.setattr(module, "SHORTEST", 2)
    model, P, S, G, T = small.model_config(), 4, 6, 3, 16
    network = Qwen2(model, S + T)
    network.load(fuse(model, small.weights(model)))
    random = np.random.default_rng(2)
    prompt, length = small.prompts(model, P, S)
    completion = random.integers(2, model.vocab_size, (P, G, T)).astype(np.int32)
    tokens = random.integers(1, 5, (P, G))
    tokens[2, 1] = T
    weight = (np.arange(T) < tokens[..., None]) * random.random((P, G, T)).astype(np.float32)
    grad = ms.value_and_grad(
        Objective(network, SupervisedLoss(), 0.9), None, ms.ParameterTuple(network.trainable_params()), True
    )

    def learn(rows, slots):
        batch = (
            prompt[rows],
            length[rows],
            completion[rows, :, :slots],
            weight[rows, :, :slots].reshape(-1, slots),
        )
        (loss, _), parts = grad(*tensors(batch))
        return float(loss.asnumpy()), np.concatenate([part.asnumpy().reshape(-1) for part in parts])

    loss, gradient = learn(np.arange(P), T)
    parts = buckets(tokens, T, SINGLE, 2)
    assert [part.slots for part in parts] == [4, 16]
    bucketed = [learn(part.rows, part.slots) for part in parts]
    assert sum(part[0] for part in bucketed) == pytest.approx(loss, rel=1e-5)
    np.testing.assert_allclose(
        sum(part[1] for part in bucketed), gradient, atol=1e-5 * np.abs(gradient).max()
    )

    layout = RoleLayout(**{**{field: 1 for field in RoleLayout.__dataclass_fields__}, "micro_batch_num": 2})
    role = RoleModel(network, SINGLE, None, ())
    found = LogProbs(role, layout, 0.9, Gather(None))(prompt, length, completion, tokens)
    wanted = network(*tensors([prompt, length, completion]), 0.9)[0].asnumpy().reshape(P, G, T)
    mask = np.arange(T) < tokens[..., None]
    np.testing.assert_allclose(found[mask], wanted[mask], atol=2e-5)
