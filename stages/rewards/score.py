"""The weighted reward of a batch; a function that raises scores 0, is counted, and stops nothing."""

from __future__ import annotations

import functools
import importlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from stages.errors import InputError
from stages.rewards.config import RewardConfig
from stages.rewards.functions import ITEM_REWARDS, ItemReward
from stages.rewards.limit import OutOfTimeError, time_limit

if TYPE_CHECKING:
    from stages.weights.dtypes import Array

ANSWER_LIMIT_S = 5.0
"""Time for one completion, for functions that may hang (maths and the user's own)."""

UserReward = Callable[[list[str], list[str]], Sequence[float]]


@dataclass(frozen=True)
class RewardScores:
    """Rewards of B completions."""

    total: Array
    """Weighted sum [B], float32."""
    parts: dict[str, Array]
    """Function name -> unweighted values [B], float32."""
    failures: dict[str, int]
    """Function name -> completions that it could not score (they count 0)."""


def score(config: RewardConfig, completions: Sequence[str], solutions: Sequence[str]) -> RewardScores:
    """Score B completions against their ground truths.

    Args:
        config: functions and weights.
        completions: B texts without end and padding tokens.
        solutions: B ground truths, as decoded from pretrain_ids.

    Raises:
        InputError: a user's function can't be imported.
    """
    import numpy as np  # here, because reading stages.rewards.config imports this package

    total = np.zeros(len(completions), np.float32)
    parts, failures = {}, {}
    for name, weight in zip(config.functions, config.weights, strict=True):
        item = ITEM_REWARDS.get(name) or _limited(_maths() if name == "maths" else user_item(name))
        values = [_guarded(item, *pair) for pair in zip(completions, solutions, strict=True)]
        parts[name] = np.array([0.0 if value is None else value for value in values], np.float32)
        failures[name] = sum(value is None for value in values)
        total += np.float32(weight) * parts[name]
    return RewardScores(total, parts, failures)


def _guarded(item: ItemReward, completion: str, solution: str) -> float | None:
    """The reward; None if the function raises or returns something that is no finite number."""
    try:
        value = float(item(completion, solution))
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
