"""GRPO: PPO's clipped surrogate per token, with group-relative advantages and a KL term in the loss.

Source: Shao et al. 2024, DeepSeekMath, arXiv:2402.03300, eq. 3 and 4.
Shapes: P prompts, G completions of each, B = P*G, T tokens.
"""

from __future__ import annotations

import numpy as np
from mindspore import Tensor, ops
from numpy.typing import NDArray

from stages.weights.dtypes import Array

EPSILON = 1e-4  # added to the deviation, as in TRL's GRPOTrainer


def group_advantages(rewards: Array, scale: bool) -> NDArray[np.float32]:
    """Return how much better a completion is than its group: rewards minus the group's mean.

    Groups with equal rewards get exactly 0, whatever their size: everything is computed in float64 from
    differences to the group's first reward.

    Args:
        rewards: [P, G], one row per prompt.
        scale: divide by the group's standard deviation (over G - 1, as TRL does); Dr. GRPO does not.

    Returns:
        advantages [P, G].

    Source: section 4.1.2.
    """
    differences = rewards.astype(np.float64)
    differences = differences - differences[:, :1]
    centred = differences - differences.mean(1, keepdims=True)
    if scale:
        centred = centred / (differences.std(1, ddof=1, keepdims=True) + EPSILON)
    advantages: NDArray[np.float32] = centred.astype(np.float32)
    return advantages


def divisor(mask: Array) -> Array:
    """Return the divisor of each token's loss: mean over a completion's tokens, then over completions.

    Args:
        mask: 1 on the tokens that count [B, T], of all workers together.

    Returns:
        [B, 1].
    """
    result: Array = len(mask) * np.maximum(mask.sum(1, keepdims=True), 1)
    return result


def clipped_surrogate(ratio: Tensor, advantage: Tensor, low: float, high: float) -> Tensor:
    """Return min(r A, clip(r, low, high) A): no reward for moving further than the bounds.

    Args:
        ratio: of the policy's probability to that of the policy that sampled, [B, T] or [B, 1].
        advantage: [B, 1].
        low: 1 - epsilon_low.
        high: 1 + epsilon_high.

    Source: Schulman et al. 2017, PPO, arXiv:1707.06347, eq. 7; the two bounds are DAPO's.
    """
    return ops.minimum(ratio * advantage, ops.clamp(ratio, low, high) * advantage)


def kl_k3(reference: Tensor, logprob: Tensor, mask: Tensor) -> Tensor:
    """Estimate KL(policy || reference) per token [B, T]: unbiased and never negative; 0 on padding.

    Source: DeepSeekMath, eq. 4; Schulman 2020, joschu.net/blog/kl-approx.html (k3).
    """
    # Padding has any logprob; the difference is taken there as 0, so that exp cannot overflow.
    difference = (reference - logprob) * mask
    return ops.exp(difference) - difference - 1.0
