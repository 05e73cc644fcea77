"""Buckets, and that the loss, the gradient and log-probabilities do not depend on them."""

from dataclasses import fields, replace

import mindspore as ms
import numpy as np
import pytest

from stages.base.layout import RoleLayout
from stages.grpo import buckets as module
from stages.grpo.batch import Batch
from stages.grpo.buckets import Bucket, buckets, halved
from stages.grpo.collectives import Gather
from stages.grpo.learner import Objective
from stages.grpo.logprobs import LogProbs
from stages.grpo.loss import SupervisedLoss
from stages.grpo.model import CausalLM
from stages.grpo.parallel import SINGLE, Mesh
from stages.grpo.parameters import fuse
from stages.grpo.setup import RoleModel
from tests.stages.grpo import small


def test_short_completions_come_together_and_all_workers_agree_on_slots():
    lengths = np.array([[90, 3], [5, 5], [8, 70], [1, 30], [40, 2], [128, 1], [7, 9], [65, 4]])
    prompts = np.array([3, 2, 1, 3, 3, 1, 1, 2])
    parts = [buckets(prompts, lengths, (3, 128), Mesh(2, worker, 1, 0), 2) for worker in (0, 1)]
    assert [part.rows.tolist() for part in parts[0]] == [[1, 3], [2, 0]]
    assert [part.rows.tolist() for part in parts[1]] == [[6, 4], [7, 5]]
    assert [part.slots for part in parts[0]] == [part.slots for part in parts[1]] == [64, 128]
    wanted = [[lengths[part.rows].sum() + 1 for part in own] for own in parts]
    assert [[part.sizes[1] for part in own] for own in parts] == wanted  # each worker's own tokens


@pytest.mark.parametrize(
    ("slots", "tokens", "wanted"),
    [(1024, 1024, 1024), (1024, 513, 1024), (1024, 512, 512), (1024, 1, 64), (100, 1, 100), (28, 2, 28)],
)
def test_slots_are_halved_while_tokens_fit(slots, tokens, wanted):
    assert halved(slots, tokens) == wanted


def test_rows_of_a_batch_are_a_part_s_prompts_with_their_completions():
    P, G, T, part = 4, 3, 8, Bucket(np.array([2, 0]), 5)
    shapes = {"prompt_PS": (P, 6), "prompt_length_P": (P,), "completion_PGT": (P, G, T)}
    rows = [field.name for field in fields(Batch)[3:] if "_B" in field.name]
    shapes |= {name: (P * G, 1 if name.endswith("_B1") else T) for name in rows} | {"tokens_PG": (P, G)}
    batch = Batch(**{name: np.random.default_rng(i).random(shapes[name]) for i, name in enumerate(shapes)})
    own = batch.rows(part)
    for name in shapes:
        rows = part.rows if name.startswith(("prompt", "completion", "tokens")) else [6, 7, 8, 0, 1, 2]
        slots = (..., slice(None, part.slots)) if name.endswith("T") else ...
        np.testing.assert_array_equal(getattr(own, name), getattr(batch, name)[rows][slots], err_msg=name)
    assert Batch(batch.prompt_PS, batch.prompt_length_P, batch.completion_PGT).rows(part).mask_BT is None


def test_loss_gradient_and_logprobs_are_those_without_buckets(monkeypatch):
    monkeypatch.setattr(module, "SHORTEST", 2)
    model, P, S, G, T = small.model_config(num_hidden_layers=1), 4, 6, 3, 16
    network = CausalLM(model, S + T)
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

    batch = Batch(prompt, length, completion, weight_BT=weight.reshape(-1, T), tokens_PG=tokens)

    def learn(part):
        (loss, *_), parts = grad(*part.tensors("weight_BT"))
        return float(loss.asnumpy()), np.concatenate([part.asnumpy().reshape(-1) for part in parts])

    loss, gradient = learn(replace(batch, tokens_PG=None))
    parts = batch.buckets(SINGLE, 2)
    assert [part.slots for part in parts] == [4, 16]
    assert all(
        part.sizes == (read + 1, tokens[part.rows].sum() + 1)
        for part in parts
        for read in [length[part.rows].sum() + (tokens[part.rows] - 1).sum()]
    )
    bucketed = [learn(batch.rows(part)) for part in parts]
    assert sum(part[0] for part in bucketed) == pytest.approx(loss, rel=1e-5)
    np.testing.assert_allclose(
        sum(part[1] for part in bucketed), gradient, atol=1e-5 * np.abs(gradient).max()
    )

    layout = RoleLayout(**{**{field: 1 for field in RoleLayout.__dataclass_fields__}, "micro_batch_num": 2})
    role = RoleModel(network, SINGLE, None, ())
    found = LogProbs(role, layout, 0.9, Gather(None))(batch)
    wanted = network(*replace(batch, tokens_PG=None).tensors(), 0.9)[0].asnumpy()
    mask = np.arange(T) < tokens.reshape(-1, 1)
    np.testing.assert_allclose(found[mask], wanted[mask], atol=2e-5)
