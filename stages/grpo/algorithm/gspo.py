"""GSPO: one importance ratio per completion instead of one per token.

A token's ratio is a single sample of a distribution, no estimate of anything; rewards belong to whole
completions, and so does the correction. Bounds are much narrower than GRPO's (the paper: 3e-4 and 4e-4).
Source: Zheng et al. 2025, arXiv:2507.18071, eq. 5 and 7. Shapes: B completions, T tokens.
"""

from __future__ import annotations

from mindspore import Tensor, ops


def sequence_log_ratio(log_ratio: Tensor, mask: Tensor) -> Tensor:
    """Mean of the tokens' log-ratios: log of the length-normalised sequence ratio, [B, 1].

    Args:
        log_ratio: logprob of the policy minus that of the policy that sampled [B, T]; 0 on padding.
        mask: 1 on the tokens that count [B, T].
    """
    length = ops.maximum(mask.sum(1, keepdims=True), ops.ones_like(mask[:, :1]))
    return log_ratio.sum(1, keepdims=True) / length
