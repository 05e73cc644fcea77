"""What the published variants of GRPO add to each other: advantages, ratios, clipping, KL, weights of tokens.

Shapes: P prompts, G completions of each, B = P*G, T tokens. Sources, by the names of train.loss_type, of
train.advantages and of train.preset:

- GRPO: Shao et al. 2024, DeepSeekMath, arXiv:2402.03300, eq. 3 and 4: PPO's clipped surrogate per token, with
  group-relative advantages and a KL term in the loss.
- Dr. GRPO: Liu et al. 2025, arXiv:2503.20783, section 3.1: no division by a completion's own length, which
  favours long wrong answers. Its other half, advantages without the group's deviation, is
  train.advantages=dr_grpo.
- DAPO: Yu et al. 2025, arXiv:2503.14476: token-level loss, dynamic sampling, overlong filtering. Clip-higher
  is train.epsilon_high alone; soft punishment of overlong answers is a reward function.
- GSPO: Zheng et al. 2025, arXiv:2507.18071, eq. 5 and 7: one importance ratio per completion instead of one
  per token. A token's ratio is a single sample of a distribution and estimates nothing; rewards belong to
  complete completions, and so does the correction. Bounds are much narrower than GRPO's (the paper: 3e-4 and
  4e-4).
- CISPO: MiniMax 2025, MiniMax-M1, arXiv:2506.13585, eq. 4 and 5: the ratio is a bounded constant factor of
  the gradient, so that no token loses its gradient.
- SAPO: Gao et al. 2025, arXiv:2511.20347: a sigmoid of the ratio in place of its bounds.
- RLOO: Ahmadian et al. 2024, arXiv:2402.14740, section 2: the baseline is the mean of the other completions.
- REINFORCE++: Hu et al. 2025, arXiv:2501.03262: no groups; advantages are normalised over the batch.
"""

from __future__ import annotations

import numpy as np
from mindspore import Tensor, ops
from numpy.typing import NDArray

from stages.weights.dtypes import Array

EPSILON = 1e-4  # added to the deviation, as in TRL's GRPOTrainer
BATCH_EPSILON = 1e-8  # added to the variance of a batch, as in verl's masked_whiten


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


def leave_one_out_advantages(rewards: Array) -> NDArray[np.float32]:
    """Return rewards [P, G] minus the mean of the group's other completions: r - (sum - r) / (G - 1).

    That is group_advantages(rewards, False) times G / (G - 1); groups with equal rewards get exactly 0.

    Source: RLOO, section 2.3.
    """
    G = rewards.shape[1]
    differences = rewards.astype(np.float64)
    differences = differences - differences[:, :1]
    advantages: NDArray[np.float32] = (
        (differences - differences.mean(1, keepdims=True)) * (G / (G - 1))
    ).astype(np.float32)
    return advantages


def batch_advantages(rewards: Array, tokens: Array) -> NDArray[np.float32]:
    """Return rewards [P, G] minus the batch's mean, divided by its standard deviation.

    The batch consists of tokens, each with the reward of its completion, so that long completions count
    more than short ones. Without a discount that is what verl's estimator computes. Equal rewards give
    exactly 0.

    Args:
        rewards: [P, G].
        tokens: of the completions [P, G].

    Source: REINFORCE++, its normalisation of advantages; verl 0.9.1, core_algos.py,
    compute_reinforce_plus_plus_outcome_advantage.
    """
    differences, count = rewards.astype(np.float64), tokens.sum()
    differences = differences - differences[0, 0]
    centred = differences - (differences * tokens).sum() / count
    variance = (centred**2 * tokens).sum() / max(count - 1, 1)
    advantages: NDArray[np.float32] = (centred / np.sqrt(variance + BATCH_EPSILON)).astype(np.float32)
    return advantages


def advantages(estimator: str, rewards: Array, scale: bool, tokens: Array) -> NDArray[np.float32]:
    """Return the advantages [P, G] of completions by the name of their estimator.

    Args:
        estimator: as train.advantages.
        rewards: [P, G].
        scale: as train.scale_advantages; only grpo reads it.
        tokens: of the completions [P, G]; only reinforce_plus_plus reads them.
    """
    if estimator == "rloo":
        return leave_one_out_advantages(rewards)
    if estimator == "reinforce_plus_plus":
        return batch_advantages(rewards, tokens)
    return group_advantages(rewards, scale and estimator == "grpo")


def grpo_divisor(mask: Array) -> Array:
    """Return the divisor of each token's loss: mean over a completion's tokens, then over completions.

    Args:
        mask: 1 on the tokens that count [B, T], of all workers together.

    Returns:
        [B, 1].
    """
    result: Array = len(mask) * np.maximum(mask.sum(1, keepdims=True), 1)
    return result


def clipped_surrogate(
    ratio: Tensor, advantage: Tensor, low: float, high: float, most: float | None = None
) -> Tensor:
    """Return min(r A, clip(r, low, high) A): no reward for moving further than the bounds.

    Args:
        ratio: of the policy's probability to that of the policy that sampled, [B, T] or [B, 1].
        advantage: [B, 1].
        low: 1 - epsilon_low.
        high: 1 + epsilon_high.
        most: dual clip: a negative advantage counts at most `most` times, max(min(...), most A); at least
            `high`, so that positive advantages are not concerned. None: without a limit.

    Source: Schulman et al. 2017, PPO, arXiv:1707.06347, eq. 7; the two bounds are DAPO's. Dual clip: Ye et
    al. 2020, arXiv:1912.09729, eq. 5.
    """
    bounded = ops.clamp(ratio, low, high) * advantage
    if most is not None:
        ratio = ops.clamp(ratio, max=most)
    return ops.minimum(ratio * advantage, bounded)


def weighted_logprob(ratio: Tensor, logprob: Tensor, advantage: Tensor, low: float, high: float) -> Tensor:
    """Return clip(r, low, high) A log p, in which the clipped ratio is a constant: REINFORCE's term.

    Args:
        ratio: as in clipped_surrogate.
        logprob: of the policy [B, T].
        advantage: [B, 1].
        low: 1 - epsilon_low.
        high: 1 + epsilon_high.

    Source: CISPO, eq. 4 and 5.
    """
    return ops.stop_gradient(ops.clamp(ratio, low, high)) * advantage * logprob


def soft_surrogate(ratio: Tensor, advantage: Tensor, positive: float, negative: float) -> Tensor:
    """Return sigmoid(t (r - 1)) 4 / t A, whose gradient at r = 1 is that of r A and falls on both sides.

    Args:
        ratio: as in clipped_surrogate.
        advantage: [B, 1].
        positive: t of positive advantages.
        negative: t of the others.

    Source: SAPO, the gate of its objective; a larger t falls faster.
    """
    temperature = ops.select(
        advantage > 0, ops.full_like(advantage, positive), ops.full_like(advantage, negative)
    )
    return ops.sigmoid(temperature * (ratio - 1.0)) * (4.0 / temperature * advantage)


def kl_k1(reference: Tensor, logprob: Tensor, mask: Tensor) -> Tensor:
    """Estimate KL(policy || reference) per token [B, T]: log(p / q), unbiased; 0 on padding.

    As a term of the loss it does nothing on average: its gradient is that of log p, whose mean over the
    policy's own samples is 0. Multiplied by the ratio (train.use_bias_correction_kl) it is the divergence's.

    Source: Schulman 2020, joschu.net/blog/kl-approx.html (k1).
    """
    return (logprob - reference) * mask


def kl_k2(reference: Tensor, logprob: Tensor, mask: Tensor) -> Tensor:
    """Estimate KL(policy || reference) per token [B, T]: log(p / q)^2 / 2, biased; 0 on padding.

    On the policy's own samples the mean of its gradient is the divergence's.

    Source: Schulman 2020, joschu.net/blog/kl-approx.html (k2).
    """
    return 0.5 * ops.square((logprob - reference) * mask)


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
