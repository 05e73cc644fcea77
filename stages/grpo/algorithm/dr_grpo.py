"""Dr. GRPO: no division by a completion's own length, which favours long wrong answers.

Its other half, advantages without the group's deviation, is train.scale_advantages=false.
Source: Liu et al. 2025, arXiv:2503.20783, section 3.1.
"""

from __future__ import annotations


def divisor(completions: int, max_tokens: int) -> int:
    """Return the divisor of each token's loss, a constant.

    Args:
        completions: of all workers together.
        max_tokens: longest completion that the rollout allows.
    """
    return completions * max_tokens
