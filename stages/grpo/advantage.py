"""Advantages: how much better a completion is than the others of its group."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

EPSILON = 1e-4  # added to the deviation, as in TRL's GRPOTrainer


def group_advantages(rewards: NDArray[Any], scale: bool) -> tuple[NDArray[np.float32], float]:
    """Rewards minus their group's mean, over its standard deviation if `scale`.

    Args:
        rewards: [P, G], one row per prompt.
        scale: divide by the deviation (over G - 1, as TRL does); Dr. GRPO (arXiv:2503.20783) does not.

    Returns:
        advantages [P, G], float32, and the share of groups whose rewards are all equal (they teach nothing).

    Source: DeepSeekMath, arXiv:2402.03300, section 4.1.2.
    """
    centred = rewards - rewards.mean(1, keepdims=True)
    deviation = rewards.std(1, ddof=1, keepdims=True)
    advantages = centred / (deviation + EPSILON) if scale else centred
    return advantages.astype(np.float32), float((np.ptp(rewards, axis=1) == 0).mean())
