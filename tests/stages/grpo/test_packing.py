"""What is computed of a batch without its padding."""

from dataclasses import fields, replace

import mindspore as ms
import numpy as np
import pytest

from stages.base.layout import RoleLayout
from stages.grpo.batch import Batch
from stages.grpo.collectives import Gather
from stages.grpo.learner import Objective
from stages.grpo.loss import SupervisedLoss
from stages.grpo.model import CausalLM
from stages.grpo.parallel import SINGLE, Mesh
from stages.grpo.parameters import fuse
from stages.grpo.roles import LogProbs, RoleModel
from tests.stages.grpo import small

P, S, G, T = 3, 5, 2, 4


def test_micro_batches_are_equal_shares_of_a_worker_s_prompts():
    P, G, T = 8, 3, 5
    shapes = {"prompt_PS": (P, 6), "prompt_length_P": (P,), "completion_PGT": (P, G, T), "tokens_PG": (P, G)}
    rows = [field.name for field in fields(Batch) if "_B" in field.name]
    shapes |= {name: (P * G, 1 if name.endswith("_B1") else T) for name in rows}
    batch = Batch(
        **{name: np.random.default_rng(i).random(shape) for i, (name, shape) in enumerate(shapes.items())}
    )
    parts = batch.micro_batches(Mesh(2, 1, 1, 0), 2)
    assert [part.tolist() for part in parts] == [[4, 5], [6, 7]]
    used = batch.take(np.array([6, 1]))
    for name in shapes:
        expected = [18, 19, 20, 3, 4, 5] if name in rows else [6, 1]
        np.testing.assert_array_equal(getattr(used, name), getattr(batch, name)[expected], err_msg=name)


def test_loss_gradient_and_logprobs_are_those_without_packing():
    model, P, S, G, T = small.model_config(num_hidden_layers=1), 4, 6, 3, 16
    network = CausalLM(model, S + T)
    network.load(fuse(model, small.weights(model)))
    random = np.random.default_rng(2)
    prompt, length = small.prompts(model, P, S)
    completion = random.integers(2, model.vocab_size, (P, G, T)).astype(np.int32)
    tokens = random.integers(1, 5, (P, G))
    tokens[2, 1] = T
    weight = (np.arange(T) < tokens[..., None]) * random.random((P, G, T)).astype(np.float32)
    parameters = ms.ParameterTuple(network.trainable_params())
    grad = ms.value_and_grad(Objective(network, SupervisedLoss(), 0.9), None, parameters, True)
    batch = Batch(prompt, length, completion, weight_BT=weight.reshape(-1, T), tokens_PG=tokens)
    full = replace(batch, tokens_PG=None)

    def learn(part):
        (loss, *_), gradients = grad(*part.tensors("weight_BT"))
        return float(loss.asnumpy()), np.concatenate([item.asnumpy().reshape(-1) for item in gradients])

    loss, gradient = learn(full)
    parts = [learn(batch.take(prompts)) for prompts in batch.micro_batches(SINGLE, 2)]
    assert sum(part[0] for part in parts) == pytest.approx(loss, rel=1e-5)
    np.testing.assert_allclose(sum(part[1] for part in parts), gradient, atol=1e-5 * np.abs(gradient).max())

    layout = RoleLayout(**{**{field: 1 for field in RoleLayout.__dataclass_fields__}, "micro_batch_num": 2})
    logprobs = LogProbs(RoleModel(network, SINGLE, None, ()), layout, 0.9, Gather(None))(batch)
    expected = network(*full.tensors(), 0.9)[0].asnumpy()
    mask = np.arange(T) < tokens.reshape(-1, 1)
    np.testing.assert_allclose(logprobs[mask], expected[mask], atol=2e-5)
