"""The losses: GRPO's clipped surrogate with a KL term, and the cross-entropy of supervised training.

Shapes: B completions on this worker, T tokens. Sums, not means, over rows: what a mean divides by is
counted over all workers and micro-batches on the host and comes in as a factor per token.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from mindspore import Tensor, nn, ops
from numpy.typing import NDArray

from stages.grpo.config import TrainConfig

Array = NDArray[Any]


def token_weights(mask: Array, loss_type: str) -> Array:
    """Factor of each token's loss, so that a plain sum over all tokens is the loss.

    Args:
        mask: 1 on completion tokens [B, T], of all workers together.
        loss_type: grpo: mean over a completion's tokens, then over completions (DeepSeekMath,
            arXiv:2402.03300, eq. 3); dapo: mean over all tokens (arXiv:2503.14476, eq. 8);
            dr_grpo: sum over tokens / T, mean over completions (arXiv:2503.20783, section 3.1).

    Returns:
        [B, T], float32.
    """
    B, T = mask.shape
    if loss_type == "grpo":
        divisor = B * np.maximum(mask.sum(1, keepdims=True), 1)
    elif loss_type == "dapo":
        divisor = np.maximum(mask.sum(), 1)
    else:
        divisor = np.array(B * T)
    weights: Array = (mask / divisor).astype(np.float32)
    return weights


class GrpoLoss(nn.Cell):
    """Sum over tokens of weight * (-min(r A, clip(r) A) + beta * k3)."""

    def __init__(self, config: TrainConfig) -> None:
        """Take over clipping bounds, beta and whether the sampling policy is the current one."""
        super().__init__()
        self.on_policy = config.num_iterations == 1
        self.low, self.high, self.beta = 1 - config.epsilon_low, 1 + config.epsilon_high, config.beta

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
        """The loss, and sums over tokens for the metrics.

        Args:
            logprob: of the policy [B, T].
            entropy: of the policy [B, T].
            old: logprob of the policy that sampled [B, T]; not looked at with num_iterations 1, where it is
                the policy's own (the ratio is 1, its gradient is that of logprob).
            reference: logprob of the reference [B, T]; not looked at when beta is 0.
            advantage: [B, 1].
            weight: factor of each token [B, T], 0 on padding.
            mask: 1 on completion tokens [B, T].

        Returns:
            the loss, and [loss, KL, entropy, clipped tokens] summed over tokens.

        Source: DeepSeekMath, arXiv:2402.03300, eq. 3 (surrogate and KL) and eq. 4 (k3, the unbiased and
        positive estimate of Schulman 2020, joschu.net/blog/kl-approx.html).
        """
        if self.on_policy:
            old = ops.stop_gradient(logprob)
        # Padding has any logprob; the difference is taken there as 0, so that exp cannot overflow.
        ratio = ops.exp((logprob - old) * mask)
        clipped = ops.clamp(ratio, self.low, self.high)
        surrogate = ops.minimum(ratio * advantage, clipped * advantage)
        per_token = -surrogate
        kl = ops.zeros_like(logprob)
        if self.beta > 0:
            difference = (reference - logprob) * mask
            kl = ops.exp(difference) - difference - 1.0
            per_token = per_token + self.beta * kl
        loss = (per_token * weight).sum()
        is_clipped = (clipped * advantage < ratio * advantage).astype(logprob.dtype)
        sums = [loss, (kl * mask).sum(), (entropy * mask).sum(), (is_clipped * mask).sum()]
        return loss, ops.stop_gradient(ops.stack(sums))


class SupervisedLoss(nn.Cell):
    """Cross-entropy of given tokens: sum of weight * -logprob."""

    def construct(self, logprob: Tensor, entropy: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        """The loss, twice: [B, T] each; the second one for the metrics."""
        loss = -(logprob * weight).sum()
        return loss, ops.stop_gradient(loss)
