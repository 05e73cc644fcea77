"""The losses: the configured policy gradient, and supervised cross-entropy.

A loss is a cell. Its construct takes the policy's logprob_BT and entropy_BT and then the fields of Batch that
it reads, by their names; it returns the loss, a scalar, and without gradient [B, K] what it adds up over the
tokens of each completion for the metrics, whose K names are the cell's `sums`.

Shapes, as suffixes: B completions on this worker, T tokens. Sums, not means, over rows: what a mean divides
by is counted over all workers and micro-batches on the host and comes in as a factor per token.
"""

from __future__ import annotations

import numpy as np
from mindspore import Tensor, nn, ops
from numpy.typing import NDArray

from stages.grpo import algorithm
from stages.grpo.config import TrainConfig
from stages.grpo.operators import ordered_sum, row_sums
from stages.weights.dtypes import Array


def token_weights(mask: Array, loss_type: str, max_tokens: int) -> NDArray[np.float32]:
    """Return the factor of each token's loss [B, T], so that a plain sum over all tokens is the loss.

    Args:
        mask: 1 on the tokens that count [B, T], of all workers together.
        loss_type: as train.loss_type.
        max_tokens: longest completion that the rollout allows; T may be shorter.
    """
    divisor: Array | int
    if loss_type in ("grpo", "sapo"):
        divisor = algorithm.grpo_divisor(mask)
    elif loss_type in ("dapo", "cispo"):
        divisor = algorithm.dapo_divisor(mask)
    else:
        divisor = algorithm.dr_grpo_divisor(len(mask), max_tokens)
    weights: NDArray[np.float32] = (mask / divisor).astype(np.float32)
    return weights


def without_gradient(config: TrainConfig, advantages_B: Array, mask_BT: Array) -> NDArray[np.bool_]:
    """Return the completions [B] on which the loss does not depend.

    With neither KL nor entropy in the loss, these have an advantage of 0, or no token that counts.
    """
    if config.beta > 0 or config.entropy_coeff > 0:
        return np.zeros(len(mask_BT), bool)
    result: NDArray[np.bool_] = (advantages_B == 0) | ~mask_BT.any(1)
    return result


class PolicyLoss(nn.Cell):
    """Sum over tokens of weight * (-surrogate + beta * KL - entropy_coeff * entropy)."""

    sums = ("loss", "kl", "entropy", "clip_low", "clip_high")

    def __init__(self, config: TrainConfig) -> None:
        super().__init__()
        self.loss_type, self.kl_estimator = config.loss_type, config.kl_estimator
        self.on_policy = config.num_iterations == 1
        self.sequence_level = config.importance_sampling_level == "sequence"
        self.low, self.high, self.beta = 1 - config.epsilon_low, 1 + config.epsilon_high, config.beta
        self.most = config.clip_ratio_c
        self.temperatures = config.sapo_temperature_pos, config.sapo_temperature_neg
        self.weigh_kl, self.entropy_coeff = config.use_bias_correction_kl, config.entropy_coeff

    def construct(
        self, logprob_BT: Tensor, entropy_BT: Tensor, old_logprobs_BT: Tensor, ref_logprobs_BT: Tensor,
        advantage_B1: Tensor, weight_BT: Tensor, mask_BT: Tensor,
    ) -> tuple[Tensor, Tensor]:  # fmt: skip
        """Return the policy loss and its per-completion sums (see module docstring).

        old_logprobs_BT is unused if num_iterations is 1: it is the policy's own (the ratio is 1, its gradient
        that of logprob_BT). ref_logprobs_BT is unused if beta is 0.
        """
        if self.on_policy:
            old_logprobs_BT = ops.stop_gradient(logprob_BT)
        # logprobs of padding are undefined; the difference there is set to 0, so that exp cannot overflow.
        log_ratio = (logprob_BT - old_logprobs_BT) * mask_BT
        if self.sequence_level:
            log_ratio = algorithm.sequence_log_ratio(log_ratio, mask_BT)
        ratio = ops.exp(log_ratio)
        loss_BT = -self.surrogate(ratio, logprob_BT, advantage_B1)
        kl_BT = ops.zeros_like(logprob_BT)
        if self.beta > 0:
            kl_BT = self.kl(ref_logprobs_BT, logprob_BT, mask_BT)
            loss_BT = loss_BT + self.beta * (kl_BT * ratio if self.weigh_kl else kl_BT)
        if self.entropy_coeff > 0:
            loss_BT = loss_BT - self.entropy_coeff * entropy_BT
        loss_BT = loss_BT * weight_BT
        too_low, too_high = self.clipped(ratio, advantage_B1)
        sums = {
            "loss": row_sums(loss_BT),
            "kl": row_sums(kl_BT * mask_BT),
            "entropy": row_sums(entropy_BT * mask_BT),
            "clip_low": row_sums(too_low.astype(mask_BT.dtype) * mask_BT),
            "clip_high": row_sums(too_high.astype(mask_BT.dtype) * mask_BT),
        }
        return ordered_sum(loss_BT), ops.stop_gradient(ops.concat([sums[name] for name in self.sums], 1))

    def surrogate(self, ratio: Tensor, logprob_BT: Tensor, advantage_B1: Tensor) -> Tensor:
        """Return what is maximised, per token or, with ratios of completions, per completion."""
        if self.loss_type == "cispo":
            return algorithm.weighted_logprob(ratio, logprob_BT, advantage_B1, self.low, self.high)
        if self.loss_type == "sapo":
            return algorithm.soft_surrogate(ratio, advantage_B1, *self.temperatures)
        return algorithm.clipped_surrogate(ratio, advantage_B1, self.low, self.high, self.most)

    def kl(self, reference_BT: Tensor, logprob_BT: Tensor, mask_BT: Tensor) -> Tensor:
        """Return the configured estimate of the KL to the reference."""
        if self.kl_estimator == "k1":
            return algorithm.kl_k1(reference_BT, logprob_BT, mask_BT)
        if self.kl_estimator == "k2":
            return algorithm.kl_k2(reference_BT, logprob_BT, mask_BT)
        return algorithm.kl_k3(reference_BT, logprob_BT, mask_BT)

    def clipped(self, ratio: Tensor, advantage_B1: Tensor) -> tuple[Tensor, Tensor]:
        """Return where a bound takes a token's gradient or, with cispo, changes its weight: below and above.

        sapo has no bounds.
        """
        if self.loss_type == "sapo":
            return ops.zeros_like(ratio), ops.zeros_like(ratio)
        if self.loss_type == "cispo":
            return ratio < self.low, ratio > self.high
        below = ops.logical_and(ratio < self.low, advantage_B1 < 0)
        above = ops.logical_and(ratio > self.high, advantage_B1 > 0)
        if self.most is not None:
            above = ops.logical_or(above, ops.logical_and(ratio > self.most, advantage_B1 < 0))
        return below, above


class SupervisedLoss(nn.Cell):
    """Cross-entropy of given tokens: sum of weight * -logprob."""

    sums = ("loss",)

    def construct(self, logprob_BT: Tensor, entropy_BT: Tensor, weight_BT: Tensor) -> tuple[Tensor, Tensor]:
        """Return the supervised loss and its per-completion sums (see module docstring)."""
        loss_BT = -logprob_BT * weight_BT
        return ordered_sum(loss_BT), ops.stop_gradient(row_sums(loss_BT))
