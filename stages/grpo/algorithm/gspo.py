"""GSPO: one importance ratio per completion instead of one per token.

A token's ratio is a single sample of a distribution and estimates nothing; rewards belong to complete
completions, and so does the correction. Bounds are much narrower than GRPO's (the paper: 3e-4 and 4e-4).
Source: Zheng et al. 2025, arXiv:2507.18071, eq. 5 and 7. Shapes: B completions, T tokens.
"""

from __future__ import annotations

from mindspore import Tensor, ops


def sequence_log_ratio(log_ratio: Tensor, mask: Tensor) -> Tensor:
    """Return the mean of the tokens' log-ratios [B, 1]: the log of the length-normalised sequence ratio.

    Args:
        log_ratio: logprob of the policy minus that of the policy that sampled [B, T]; 0 on padding.
        mask: 1 on the tokens that count [B, T].
    """
    length = ops.maximum(mask.sum(1, keepdims=True), ops.ones_like(mask[:, :1]))
    return log_ratio.sum(1, keepdims=True) / length
