"""Losses and operators of the network by hand in float64; AdamW and learning rates beside torch."""

from dataclasses import replace

import mindspore as ms
import numpy as np
import pytest
from mindspore import Parameter, Tensor

from pipeline.config.load import load
from stages.grpo.collectives import Groups
from stages.grpo.loss import SupervisedLoss, token_weights
from stages.grpo.operators import Gated, ordered_sum, square_sum
from stages.grpo.optimizer import LARGE, AdamW, learning_rate
from stages.grpo.parallel import SINGLE
from stages.grpo.token_logits import TokenLogits, TokenLogitsAndMeans
from tests.stages.grpo.small import train_config

MASK = np.array([[1, 1, 1, 0], [1, 0, 0, 0]], np.float32)


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


@pytest.mark.parametrize("rows", [N, 3])
def test_the_gradient_of_entropies_equals_torchs(rows):
    """Also where a softmax underflows to 0: logits of 300."""
    torch = pytest.importorskip("torch")
    random, vocabulary = np.random.default_rng(0), V if rows == N else 30
    x, head = (random.normal(size=(n, H), scale=0.7).astype(np.float32) for n in (rows, vocabulary))
    head[5] *= 60
    ids = random.integers(0, 9, rows).astype(np.int32)
    factors = random.normal(size=(3, rows)).astype(np.float32)
    cell = TokenLogitsAndMeans(H, vocabulary)

    weights = [Tensor(factor[:, None]) for factor in factors]

    def total(x, head):
        sums, chosen, means, _ = cell(x, head, Tensor(ids), rows)
        return (sums * weights[0] + chosen * weights[1] + means * weights[2]).sum()

    gradients = ms.grad(ms.jit(total), (0, 1))(Tensor(x), Tensor(head))
    twins = [torch.from_numpy(array).double().requires_grad_() for array in (x, head)]
    logits = twins[0] @ twins[1].T
    means = (logits.softmax(1) * logits).sum(1)
    outputs = logits.logsumexp(1), logits[torch.arange(rows), torch.from_numpy(ids).long()], means
    (torch.stack(outputs) * torch.from_numpy(factors)).sum().backward()
    for gradient, twin in zip(gradients, twins, strict=True):
        limit = 1e-5 * twin.grad.abs().max().item()
        np.testing.assert_allclose(gradient.asnumpy(), twin.grad.numpy(), rtol=1e-3, atol=limit)


def test_gated_units_and_their_gradients_equal_torchs():
    """Also where the sigmoid is 0 or 1: gates of -200 and 200."""
    torch = pytest.importorskip("torch")
    gate, up, weight = np.random.default_rng(0).normal(size=(3, 40, 30)).astype(np.float32)
    gate[0, :2] = -200, 200
    cell = Gated()

    def total(gate, up):
        units = cell(gate, up)
        return (units * Tensor(weight)).sum(), units

    gradients, (units,) = ms.grad(ms.jit(total), (0, 1), has_aux=True)(Tensor(gate), Tensor(up))
    twins = [torch.from_numpy(array).double().requires_grad_() for array in (gate, up)]
    expected = torch.nn.functional.silu(twins[0]) * twins[1]
    (expected * torch.from_numpy(weight)).sum().backward()
    pairs = [(units, expected.detach()), *zip(gradients, [twin.grad for twin in twins], strict=True)]
    for actual, value in pairs:
        np.testing.assert_allclose(actual.asnumpy(), value.numpy(), rtol=2e-6, atol=2e-6)


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


@pytest.mark.parametrize(("max_grad_norm", "large"), [(None, LARGE), (0.5, LARGE), (0.5, 12)])
def test_equals_torch(max_grad_norm, large, monkeypatch):
    torch = pytest.importorskip("torch")
    monkeypatch.setattr("stages.grpo.optimizer.LARGE", large)
    monkeypatch.setattr("stages.grpo.optimizer.PIECES", 2)
    arrays = [np.random.default_rng(0).normal(size=shape).astype(np.float32) for shape in ((3, 4), (5,))]
    actual = [Parameter(Tensor(array), name=name) for array, name in zip(arrays, "ab", strict=True)]
    config = train_config(weight_decay=0.1, max_grad_norm=max_grad_norm)
    optimizer = AdamW(actual, [False, False], config, SINGLE, Groups(1))
    twins = [torch.nn.Parameter(torch.from_numpy(parameter.asnumpy().copy())) for parameter in actual]
    groups = [{"params": twins[:1], "weight_decay": 0.1}, {"params": twins[1:], "weight_decay": 0.0}]
    twin = torch.optim.AdamW(groups, lr=1e-2, betas=(0.9, 0.95), eps=1e-8)
    for step in range(1, 5):
        flat = np.random.default_rng(step).normal(size=17).astype(np.float32)
        pieces = (Tensor(flat[:12].reshape(3, 4)), Tensor(flat[12:]))
        norm = optimizer.update(Tensor(1e-2, ms.float32), Tensor(float(step), ms.float32), list(pieces))
        np.testing.assert_allclose(norm.asnumpy(), np.linalg.norm(flat), rtol=1e-5)
        twins[0].grad, twins[1].grad = (
            torch.from_numpy(flat[:12].reshape(3, 4)),
            torch.from_numpy(flat[12:].copy()),
        )
        if max_grad_norm is not None:
            torch.nn.utils.clip_grad_norm_(twins, max_grad_norm)
        twin.step()
        for parameter, expected in zip(actual, twins, strict=True):
            np.testing.assert_allclose(parameter.asnumpy(), expected.detach().numpy(), rtol=1e-5, atol=1e-6)
    for moments, key in ((optimizer.m, "exp_avg"), (optimizer.v, "exp_avg_sq")):
        for moment, expected in zip(moments, twins, strict=True):
            stored = twin.state[expected][key].numpy()
            np.testing.assert_allclose(moment.asnumpy(), stored, rtol=1e-5, atol=1e-6)


def random_schedule(seed):
    """Random values of the learning rate's fields, num_iterations included."""
    random = np.random.default_rng(seed)
    steps = int(random.integers(1, 30))
    values = {
        "steps": steps,
        "learning_rate": float(10 ** random.uniform(-6, -1)),
        "schedule": str(random.choice(["constant", "cosine", "linear"])),
        "warmup_steps": int(random.integers(0, steps + 1)) if random.random() < 0.7 else 0,
        "final_share": float(random.choice([0.0, random.random(), 1.0])),
    }
    return values, int(random.integers(1, 5))


def torch_rates(torch, values, updates):
    """Rates of all updates by torch's schedulers, in float64."""
    peak, warmup = values["learning_rate"], values["warmup_steps"]
    lr_scheduler = torch.optim.lr_scheduler
    optimizer = torch.optim.SGD([torch.zeros(1, dtype=torch.float64)], lr=peak)
    decay, share = max(1, updates - 1 - warmup), values["final_share"]
    falling = {
        "constant": lambda: lr_scheduler.ConstantLR(optimizer, factor=1.0),
        "linear": lambda: lr_scheduler.LinearLR(optimizer, 1.0, share, total_iters=decay),
        "cosine": lambda: lr_scheduler.CosineAnnealingLR(optimizer, decay, eta_min=share * peak),
    }[values["schedule"]]()
    scheduler = falling
    if warmup:  # of one update: the peak, then the peak again
        first, count = (1 / warmup, warmup - 1) if warmup > 1 else (1.0, 1)
        rising = lr_scheduler.LinearLR(optimizer, first, 1.0, total_iters=count)
        scheduler = lr_scheduler.SequentialLR(optimizer, [rising, falling], [warmup])
    rates = []
    for _ in range(updates):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    return rates


@pytest.mark.parametrize("stage", ["grpo", "sft"])
def test_learning_rates_equal_those_of_torch(stage):
    torch = pytest.importorskip("torch")
    sft = load(()).sft
    for seed in range(200):
        values, iterations = random_schedule(seed)
        if stage == "grpo":
            config, updates = train_config(**values, num_iterations=iterations), values["steps"] * iterations
        else:
            config, updates = replace(sft, **values), values["steps"]
        rates = [learning_rate(config, update) for update in range(3 * updates)]
        expected = torch_rates(torch, values, updates)
        peak = values["learning_rate"]
        np.testing.assert_allclose(
            rates[:updates], expected, rtol=1e-9, atol=1e-12 * peak, err_msg=str(values)
        )
        last = peak * (1 if values["schedule"] == "constant" else values["final_share"])
        assert rates[-1] == pytest.approx(last, rel=1e-9, abs=1e-12 * peak)  # also long after the end
