"""DAPO: clip-higher, token-level loss, dynamic sampling, overlong filtering.

Clip-higher is train.epsilon_high alone; soft punishment of overlong answers is a reward function.
Source: Yu et al. 2025, arXiv:2503.14476. Shapes: P groups, G completions of each, T tokens.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from stages.weights.dtypes import Array


def divisor(mask: Array) -> Array:
    """Return the divisor of each token's loss: all tokens have equal weight (section 3.3, eq. 12).

    Args:
        mask: 1 on the tokens that count [B, T], of all workers together.
    """
    result: Array = np.maximum(mask.sum(), 1)
    return result


def informative(rewards: Array) -> NDArray[np.bool_]:
    """Return the mask of groups whose rewards [P, G] differ, which have a signal (section 3.2, eq. 11)."""
    result: NDArray[np.bool_] = np.ptp(rewards, axis=1) > 0
    return result


def choose(rewards: Array, size: int) -> NDArray[np.intp]:
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
    """Return mask [B, T] without the completions that were cut [B] (section 3.4)."""
    result: Array = mask * ~cut[:, None]
    return result
