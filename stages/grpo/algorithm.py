"""What the published variants of GRPO add to each other: advantages, ratios, clipping, KL, weights of tokens.

Shapes: P prompts, G completions of each, B = P*G, T tokens. Sources, by the names of train.loss_type:

- GRPO: Shao et al. 2024, DeepSeekMath, arXiv:2402.03300, eq. 3 and 4: PPO's clipped surrogate per token, with
  group-relative advantages and a KL term in the loss.
- Dr. GRPO: Liu et al. 2025, arXiv:2503.20783, section 3.1: no division by a completion's own length, which
  favours long wrong answers. Its other half, advantages without the group's deviation, is
  train.scale_advantages=false.
- DAPO: Yu et al. 2025, arXiv:2503.14476: token-level loss, dynamic sampling, overlong filtering. Clip-higher
  is train.epsilon_high alone; soft punishment of overlong answers is a reward function.
- GSPO: Zheng et al. 2025, arXiv:2507.18071, eq. 5 and 7: one importance ratio per completion instead of one
  per token. A token's ratio is a single sample of a distribution and estimates nothing; rewards belong to
  complete completions, and so does the correction. Bounds are much narrower than GRPO's (the paper: 3e-4 and
  4e-4).
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

    Source: DeepSeekMath, section 4.1.2.
    """
    differences = rewards.astype(np.float64)
    differences = differences - differences[:, :1]
    centred = differences - differences.mean(1, keepdims=True)
    if scale:
        centred = centred / (differences.std(1, ddof=1, keepdims=True) + EPSILON)
    advantages: NDArray[np.float32] = centred.astype(np.float32)
    return advantages


def grpo_divisor(mask: Array) -> Array:
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


def dr_grpo_divisor(completions: int, max_tokens: int) -> int:
    """Return the divisor of each token's loss, a constant.

    Args:
        completions: of all workers together.
        max_tokens: longest completion that the rollout allows.
    """
    return completions * max_tokens


def dapo_divisor(mask: Array) -> Array:
    """Return the divisor of each token's loss: all tokens have equal weight (DAPO, section 3.3, eq. 12).

    Args:
        mask: 1 on the tokens that count [B, T], of all workers together.
    """
    result: Array = np.maximum(mask.sum(), 1)
    return result


def informative(rewards: Array) -> NDArray[np.bool_]:
    """Return the mask of groups whose rewards [P, G] differ; only these have a signal (DAPO, eq. 11)."""
    result: NDArray[np.bool_] = np.ptp(rewards, axis=1) > 0
    return result


def choose_groups(rewards: Array, size: int) -> NDArray[np.intp]:
    """Return the indices of the sampled groups that an update uses, in sampling order.

    Args:
        rewards: [P, G] of all groups sampled for this update, P at least `size`.
        size: groups of an update.

    Returns:
        the first `size` informative groups; where there are fewer, the first of the others fill up: their
        advantages are 0.
    """
    first = np.argsort(~informative(rewards), kind="stable")[:size]
    return np.sort(first)


def without_cut(mask: Array, cut: Array) -> Array:
    """Return mask [B, T] without the completions that were cut [B] (DAPO, section 3.4)."""
    result: Array = mask * ~cut[:, None]
    return result


def sequence_log_ratio(log_ratio: Tensor, mask: Tensor) -> Tensor:
    """Return the mean of the tokens' log-ratios [B, 1]: the log of the length-normalised sequence ratio.

    Args:
        log_ratio: logprob of the policy minus that of the policy that sampled [B, T]; 0 on padding.
        mask: 1 on the tokens that count [B, T].
    """
    length = ops.maximum(mask.sum(1, keepdims=True), ops.ones_like(mask[:, :1]))
    return log_ratio.sum(1, keepdims=True) / length
