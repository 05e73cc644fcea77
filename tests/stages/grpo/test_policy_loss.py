"""Losses, KL estimators, dual clip and entropy bonus beside torch's autograd in float64."""

import mindspore as ms
import numpy as np
import pytest
from mindspore import Tensor

from stages.grpo.loss import PolicyLoss, token_weights
from tests.stages.grpo.small import train_config

B, T, MAX_TOKENS = 6, 7, 9
BASE = {"loss_type": "grpo", "num_iterations": 2, "epsilon_low": 0.2, "epsilon_high": 0.25, "beta": 0.0}
CASES = {
    "k1": {"beta": 0.3, "kl_estimator": "k1"},
    "k1_unbiased": {"beta": 0.3, "kl_estimator": "k1", "use_bias_correction_kl": True},
    "k2": {"beta": 0.3, "kl_estimator": "k2", "loss_type": "dapo"},
    "k3": {"beta": 0.3, "kl_estimator": "k3", "loss_type": "dr_grpo"},
    "cispo_with_both_bounds": {"loss_type": "cispo", "beta": 0.1, "kl_estimator": "k2"},
    "cispo_on_policy": {"loss_type": "cispo", "num_iterations": 1},
    "cispo_per_completion": {"loss_type": "cispo", "importance_sampling_level": "sequence",
                             "epsilon_low": 0.01, "epsilon_high": 0.01},
    "sapo": {"loss_type": "sapo", "sapo_temperature_pos": 2.0, "sapo_temperature_neg": 5.0},
    "dual_clip": {"clip_ratio_c": 1.3},
    "dual_clip_per_completion": {"clip_ratio_c": 1.02, "epsilon_high": 0.01,
                                 "importance_sampling_level": "sequence"},
    "entropy": {"entropy_coeff": 0.2},
    "entropy_dr_grpo": {"entropy_coeff": 0.2, "loss_type": "dr_grpo"},
    "entropy_sapo_with_kl": {"entropy_coeff": 0.2, "loss_type": "sapo", "beta": 0.1},
}  # fmt: skip


@pytest.fixture(scope="module")
def batch():
    random = np.random.default_rng(3)
    logprob = -random.uniform(0.05, 4.0, (B, T))
    tokens = np.array([T, 3, 1, 5, 0, 6])
    return {
        "logprob": logprob,
        "entropy": random.uniform(0.1, 3.0, (B, T)),
        "old": logprob + 0.3 * random.normal(size=(B, T)),
        "reference": logprob + 0.5 * random.normal(size=(B, T)),
        "advantage": np.array([1.5, -0.7, 0.4, -1.2, 0.8, 0.0])[:, None],
        "mask": (np.arange(T) < tokens[:, None]).astype(float),
    }


def by_hand(torch, batch, config):
    """Loss, its gradients of log-probabilities and entropies, and the tokens beyond each bound."""
    values = {name: torch.from_numpy(array) for name, array in batch.items()}
    logprob, entropy = (values[name].clone().requires_grad_() for name in ("logprob", "entropy"))
    mask, advantage = values["mask"], values["advantage"]
    old = logprob.detach() if config.num_iterations == 1 else values["old"]
    log_ratio = logprob - old
    if config.importance_sampling_level == "sequence":
        log_ratio = ((log_ratio * mask).sum(1) / mask.sum(1).clip(min=1))[:, None].expand(-1, T)
    ratio = log_ratio.exp()
    low, high = 1 - config.epsilon_low, 1 + config.epsilon_high
    above, below = ratio > high, ratio < low
    if config.loss_type == "cispo":
        token = -ratio.clip(low, high).detach() * advantage * logprob
    elif config.loss_type == "sapo":
        tau = torch.tensor([config.sapo_temperature_pos if a > 0 else config.sapo_temperature_neg
                            for a in advantage[:, 0].tolist()])[:, None]  # fmt: skip
        token = -(1 / (1 + (-tau * (ratio - 1)).exp())) * 4 / tau * advantage
        above = below = torch.zeros_like(above)
    else:
        token = -torch.minimum(ratio * advantage, ratio.clip(low, high) * advantage)
        above, below = above & (advantage > 0), below & (advantage < 0)
        if config.clip_ratio_c is not None:
            token = torch.where(advantage < 0, token.minimum(-config.clip_ratio_c * advantage), token)
            above = above | (ratio > config.clip_ratio_c) & (advantage < 0)
    if config.beta:
        x = logprob - values["reference"]
        kl = {"k1": x, "k2": x**2 / 2, "k3": (-x).exp() + x - 1}[config.kl_estimator]
        token = token + config.beta * kl * (ratio if config.use_bias_correction_kl else 1)
    token = token - config.entropy_coeff * entropy
    if config.loss_type in ("grpo", "sapo"):
        loss = ((token * mask).sum(1) / mask.sum(1).clip(min=1)).mean()
    elif config.loss_type in ("dapo", "cispo"):
        loss = (token * mask).sum() / mask.sum()
    else:
        loss = (token * mask).sum() / (B * MAX_TOKENS)
    (loss + 0 * entropy.sum()).backward()
    return loss.item(), logprob.grad.numpy(), entropy.grad.numpy(), below & (mask > 0), above & (mask > 0)


def ours(batch, config):
    cell = PolicyLoss(config)
    weight = token_weights(batch["mask"], config.loss_type, MAX_TOKENS)
    names = ("old", "reference", "advantage")
    others = [Tensor(batch[name].astype(np.float32)) for name in names]
    others += [Tensor(weight), Tensor(batch["mask"].astype(np.float32))]
    grad = ms.value_and_grad(cell, (0, 1), has_aux=True)
    given = (Tensor(batch[name].astype(np.float32)) for name in ("logprob", "entropy"))
    (loss, sums), gradients = grad(*given, *others)
    return float(loss.asnumpy()), *(array.asnumpy() for array in gradients), sums.asnumpy()


@pytest.mark.parametrize("name", CASES)
def test_loss_and_gradients_equal_torchs(name, batch):
    torch = pytest.importorskip("torch")
    config = train_config(**{**BASE, **CASES[name]})
    loss, of_logprob, of_entropy, below, above = by_hand(torch, batch, config)
    actual, *gradients, sums = ours(batch, config)
    assert actual == pytest.approx(loss, rel=1e-5, abs=1e-6)
    for gradient, expected in zip(gradients, (of_logprob, of_entropy), strict=True):
        np.testing.assert_allclose(gradient, expected, rtol=1e-4, atol=1e-6 * np.abs(of_logprob).max())
    clipped = [sums[:, PolicyLoss.sums.index(f"clip_{side}")] for side in ("low", "high")]
    for share, expected in zip(clipped, (below, above), strict=True):
        np.testing.assert_array_equal(share, expected.sum(1))
    assert np.abs(of_logprob).max() > 0.01 and (np.abs(of_entropy).max() > 0.001) == ("entropy" in name)


def test_the_cases_reach_every_bound(batch):
    torch = pytest.importorskip("torch")
    reached = {name: by_hand(torch, batch, train_config(**{**BASE, **CASES[name]}))[3:] for name in CASES}
    for name in ("cispo_with_both_bounds", "cispo_per_completion", "dual_clip"):
        assert all(side.any() for side in reached[name]), name
    without = {**CASES["dual_clip"], "clip_ratio_c": None}
    plain = by_hand(torch, batch, train_config(**{**BASE, **without}))[4]
    assert reached["dual_clip"][1].sum() > plain.sum()
