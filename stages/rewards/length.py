"""Rewards that depend on how long a completion is, in tokens, its end token included."""

import math
from dataclasses import dataclass
from typing import Annotated, Literal

from annotated_types import Gt, Le

from stages.base.bounds import Positive

LENGTH_REWARDS = ("soft_overlong", "cosine")


@dataclass(frozen=True)
class LengthConfig:
    """Settings of the rewards by length."""

    max_tokens: Positive
    """Longest completion in tokens; rollout.max_tokens, at which completions are cut."""
    soft_share: Annotated[float, Gt(0), Le(1)]
    """soft_overlong: the last part of max_tokens, over which the penalty grows (DAPO: 4096 of 20480)."""
    correct_by: Literal["number", "accuracy", "qwen_accuracy", "maths"]
    """cosine: the function that tells right from wrong."""
    correct: tuple[float, ...]
    """cosine: reward of a right completion of no length, and of one of max_tokens."""
    wrong: tuple[float, ...]
    """cosine: the same for a wrong one; rising, so that longer reasoning costs less."""
    exceeded: float
    """cosine: reward of a completion that is cut off at max_tokens."""


def soft_overlong(tokens: int, config: LengthConfig) -> float:
    """Return 0 up to a soft limit, then a value that falls linearly to -1 at max_tokens.

    Source: DAPO, arXiv:2503.14476, eq. 13 (L_cache = soft_share * L_max).
    """
    cache = config.soft_share * config.max_tokens
    return -min(1.0, max(0.0, (tokens - (config.max_tokens - cache)) / cache))


def cosine(tokens: int, right: bool, config: LengthConfig) -> float:
    """Interpolate between two values along half a cosine: short is better if right, worse if wrong.

    Source: Yeo et al. 2025, arXiv:2502.03373, eq. 1.
    """
    if tokens >= config.max_tokens:
        return config.exceeded
    first, last = config.correct if right else config.wrong
    return last + (first - last) * (1 + math.cos(math.pi * tokens / config.max_tokens)) / 2
