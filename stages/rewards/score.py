"""The weighted reward of a batch; a function that raises scores 0, is counted, and stops nothing."""

from __future__ import annotations

import functools
import importlib
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from stages.errors import InputError
from stages.rewards.config import RewardConfig
from stages.rewards.functions import ITEM_REWARDS, ItemReward
from stages.rewards.length import LENGTH_REWARDS, cosine, soft_overlong
from stages.rewards.limit import OutOfTimeError, time_limit

if TYPE_CHECKING:
    from stages.weights.dtypes import Array

ANSWER_LIMIT_S = 5.0
"""Time for one completion, for functions that may hang (maths and the user's own)."""

UserReward = Callable[[list[str], list[str]], Sequence[float]]
Reward = Callable[[str, str, int], float]
"""Of one completion, its ground truth and its length in tokens."""


@dataclass(frozen=True)
class RewardScores:
    """Rewards of B completions."""

    total: Array
    """Weighted sum [B], float32."""
    parts: dict[str, Array]
    """Function name -> unweighted values [B], float32."""
    failures: dict[str, int]
    """Function name -> completions that it could not score (they count 0)."""


def score(
    config: RewardConfig,
    completions: Sequence[str],
    solutions: Sequence[str],
    lengths: Iterable[int] | None = None,
) -> RewardScores:
    """Score B completions against their ground truths.

    Args:
        config: functions and weights.
        completions: B texts without end and padding tokens.
        solutions: B ground truths, as decoded from pretrain_ids.
        lengths: tokens of each completion, its end token included; needed for rewards by length.

    Raises:
        InputError: a user's function can't be imported, or `lengths` is needed.
    """
    import numpy as np  # here, because reading stages.rewards.config imports this package

    values, failures = score_each(config, completions, solutions, lengths)
    parts = {name: np.array(column, np.float32) for name, column in values.items()}
    total = np.zeros(len(completions), np.float32)
    for name, weight in zip(config.functions, config.weights, strict=True):
        total += np.float32(weight) * parts[name]
    return RewardScores(total, parts, failures)


def score_each(
    config: RewardConfig,
    completions: Sequence[str],
    solutions: Sequence[str],
    lengths: Iterable[int] | None = None,
) -> tuple[dict[str, list[float]], dict[str, int]]:
    """As `score`, in plain numbers: function name -> unweighted rewards, and -> failures."""
    if lengths is None and any(name in LENGTH_REWARDS for name in config.functions):
        rule = "needs the completions' lengths in tokens"
        raise InputError("reward.functions", ", ".join(config.functions), rule)
    tokens = [0] * len(completions) if lengths is None else [int(length) for length in lengths]
    parts, failures = {}, {}
    for name in config.functions:
        reward = _by_length(name, config) if name in LENGTH_REWARDS else _by_text(name)
        rows = zip(completions, solutions, tokens, strict=True)
        values = [_guarded(reward, *row) for row in rows]
        parts[name] = [0.0 if value is None else value for value in values]
        failures[name] = sum(value is None for value in values)
    return parts, failures


def _by_text(name: str) -> Reward:
    """A function of completion and solution, with a time limit where it isn't ours."""
    item = ITEM_REWARDS.get(name) or _limited(_maths() if name == "maths" else user_item(name))
    return lambda completion, solution, tokens: item(completion, solution)


def _by_length(name: str, config: RewardConfig) -> Reward:
    length = config.length
    assert length is not None  # check_reward requires it
    if name == "soft_overlong":
        return lambda completion, solution, tokens: soft_overlong(tokens, length)
    right = _by_text(length.correct_by)
    return lambda completion, solution, tokens: cosine(
        tokens, right(completion, solution, tokens) > 0, length
    )


def _guarded(reward: Reward, completion: str, solution: str, tokens: int) -> float | None:
    """The reward; None if the function raises or returns something that is no finite number."""
    try:
        value = float(reward(completion, solution, tokens))
    except (Exception, OutOfTimeError):  # whatever a reward does wrong must not end a training run
        return None
    return value if math.isfinite(value) else None


def _limited(item: ItemReward) -> ItemReward:
    def limited(completion: str, solution: str) -> float:
        with time_limit(ANSWER_LIMIT_S):
            return item(completion, solution)

    return limited


def _maths() -> ItemReward:
    """Raise here, once, rather than count a missing package as a failure of every completion."""
    try:
        importlib.import_module("math_verify")
    except ImportError as error:
        raise InputError("reward.functions", "maths", str(error), "pip install math-verify") from error
    from stages.rewards.maths import maths

    return maths


def user_item(name: str) -> ItemReward:
    """Call the user's batch function for one completion at a time, so that one failure costs one reward."""
    function = user_function(name)

    def item(completion: str, solution: str) -> float:
        (value,) = function([completion], [solution])
        return value

    return item


@functools.cache
def user_function(name: str) -> UserReward:
    """Import the user's reward `module:function`.

    Raises:
        InputError: the module or function does not exist, or is not callable.
    """
    module_name, _, attribute = name.partition(":")
    try:
        function: Any = getattr(importlib.import_module(module_name), attribute)
    except Exception as error:  # a user's module may raise anything while it is imported
        remedy = "give module:function, importable on PYTHONPATH"
        raise InputError("reward.functions", name, f"can't be imported: {error}", remedy) from error
    if not callable(function):
        raise InputError("reward.functions", name, "must be a function of (completions, solutions)")
    return cast(UserReward, function)
