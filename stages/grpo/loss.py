"""The losses: policy gradients as the configuration puts them together, and supervised cross-entropy.

Shapes: B completions on this worker, T tokens. Sums, not means, over rows: what a mean divides by is
counted over all workers and micro-batches on the host and comes in as a factor per token.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from mindspore import Tensor, nn, ops
from numpy.typing import NDArray

from stages.grpo.algorithm import dapo, dr_grpo, grpo, gspo
from stages.grpo.config import TrainConfig
from stages.grpo.reduction import ordered_sum, row_sums

Array = NDArray[Any]

SUMS = ("loss", "kl", "entropy", "clip_low", "clip_high")
"""What PolicyLoss adds up over the tokens of each completion for the metrics."""


def token_weights(mask: Array, loss_type: str, max_tokens: int) -> NDArray[np.float32]:
    """Factor of each token's loss, so that a plain sum over all tokens is the loss.

    Args:
        mask: 1 on the tokens that count [B, T], of all workers together.
        loss_type: as train.loss_type.
        max_tokens: longest completion that the rollout allows; T may be shorter.

    Returns:
        [B, T].
    """
    divisor: Any = {
        "grpo": grpo.divisor(mask),
        "dapo": dapo.divisor(mask),
        "dr_grpo": dr_grpo.divisor(len(mask), max_tokens),
    }[loss_type]
    weights: NDArray[np.float32] = (mask / divisor).astype(np.float32)
    return weights


class PolicyLoss(nn.Cell):
    """Sum over tokens of weight * (-clipped surrogate + beta * KL)."""

    def __init__(self, config: TrainConfig) -> None:
        """Take over clipping bounds, beta, and whether the policy that sampled is the current one."""
        super().__init__()
        self.on_policy = config.num_iterations == 1
        self.sequence_level = config.importance_sampling_level == "sequence"
        self.low, self.high, self.beta = 1 - config.epsilon_low, 1 + config.epsilon_high, config.beta
        self.weigh_kl = config.use_bias_correction_kl

    def construct(
        self,
        logprob: Tensor,
        entropy: Tensor,
        old: Tensor,
        reference: Tensor,
        advantage: Tensor,
        weight: Tensor,
        mask: Tensor,
    ) -> tuple[Tensor, Tensor]:
        """The loss, and SUMS of each completion [B, len(SUMS)].

        Args:
            logprob: of the policy [B, T].
            entropy: of the policy [B, T].
            old: logprob of the policy that sampled [B, T]; not looked at with num_iterations 1, where it is
                the policy's own (the ratio is 1, its gradient is that of logprob).
            reference: logprob of the reference [B, T]; not looked at when beta is 0.
            advantage: [B, 1].
            weight: factor of each token [B, T], 0 on padding.
            mask: 1 on the tokens that count [B, T].
        """
        if self.on_policy:
            old = ops.stop_gradient(logprob)
        # Padding has any logprob; the difference is taken there as 0, so that exp cannot overflow.
        log_ratio = (logprob - old) * mask
        if self.sequence_level:
            log_ratio = gspo.sequence_log_ratio(log_ratio, mask)
        ratio = ops.exp(log_ratio)
        per_token = -grpo.clipped_surrogate(ratio, advantage, self.low, self.high)
        kl = ops.zeros_like(logprob)
        if self.beta > 0:
            kl = grpo.kl_k3(reference, logprob, mask)
            per_token = per_token + self.beta * (kl * ratio if self.weigh_kl else kl)
        per_token = per_token * weight
        too_low = ops.logical_and(ratio < self.low, advantage < 0).astype(mask.dtype)
        too_high = ops.logical_and(ratio > self.high, advantage > 0).astype(mask.dtype)
        sums = [row_sums(per_token), *[row_sums(each * mask) for each in (kl, entropy, too_low, too_high)]]
        return ordered_sum(per_token), ops.stop_gradient(ops.concat(sums, 1))


class SupervisedLoss(nn.Cell):
    """Cross-entropy of given tokens: sum of weight * -logprob."""

    def construct(self, logprob: Tensor, entropy: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        """The loss, and that of each row [B, 1] for the metrics; arguments [B, T] each."""
        per_token = -logprob * weight
        return ordered_sum(per_token), ops.stop_gradient(row_sums(per_token))
