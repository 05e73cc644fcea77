"""The weighted reward of a batch of completions.

A completion for which a function fails scores 0; `check_failures` refuses too many failures.
"""

from __future__ import annotations

import functools
import importlib
import math
import reprlib
import time
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from stages.base.errors import InputError
from stages.rewards.config import RewardConfig
from stages.rewards.functions import ITEM_REWARDS, ItemReward, UnscorableError
from stages.rewards.length import LENGTH_REWARDS, cosine, soft_overlong
from stages.rewards.limit import OutOfTimeError, time_limit

if TYPE_CHECKING:
    from stages.weights.dtypes import Array

ANSWER_LIMIT_S = 5.0
"""Time for one completion, for functions that may hang (maths and the user's)."""
TIMEOUTS_LIMIT_S, TIMEOUTS_PER = 30.0, 256
"""Total time for calls that exceed their limit, per so many completions; further ones are then not tried."""
LARGEST = 1e18
"""Largest reward: its square, for a group's standard deviation, must be a float32."""
MATHS = "stages.rewards.maths:maths"
"""Imported on demand: math-verify is optional and takes long to import."""

UserReward = Callable[[list[str], list[str]], Sequence[float]]
Reward = Callable[[str, str, int], float]
"""Reward of one completion from its text, ground truth and length in tokens."""


@dataclass(frozen=True)
class Columns:
    """Rewards of B completions by function."""

    parts: dict[str, Any]
    """Function name -> unweighted values [B], a list; in RewardScores a float32 array."""
    failures: dict[str, int]
    """Function name -> completions that it could not score (they count 0)."""
    faults: dict[str, int]
    """The failures except for those with an unusable ground truth, which are not the function's fault."""
    messages: dict[str, str]
    """Function name -> description of its first failure, if it had one."""


@dataclass(frozen=True)
class RewardScores(Columns):
    """Rewards of B completions as arrays, with their weighted sum."""

    total: Array
    """Weighted sum [B], float32."""


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
    import numpy as np  # here: plans score without it

    columns = score_each(config, completions, solutions, lengths)
    parts = {name: np.array(column, np.float32) for name, column in columns.parts.items()}
    return RewardScores(**{**vars(columns), "parts": parts}, total=weighted(config, parts))


def weighted(config: RewardConfig, parts: Mapping[str, Array]) -> Array:
    """Return the weighted sum of all functions' values [B] as float32."""
    import numpy as np

    total = np.zeros(len(parts[config.functions[0]]), np.float32)
    for name, weight in zip(config.functions, config.weights, strict=True):
        total += np.float32(weight) * parts[name]
    return total


def check_failures(config: RewardConfig, scores: Columns, count: int, where: str) -> None:
    """Refuse scores of `count` completions with more failures than config.max_failures, or than a tenth.

    `where` describes the completions in the message.
    """
    allowed, key = config.max_failures, f"reward.max_failures={config.max_failures}"
    if allowed is None:
        allowed, key = count // 10, "a tenth"
    for name, faults in scores.faults.items():
        if faults > allowed:
            rule = f"failed for {faults} of {count} {where}, more than {key}: {scores.messages.get(name)}"
            remedy = "correct the function, or allow more with reward.max_failures"
            raise InputError("reward.functions", name, rule, remedy)


def score_each(
    config: RewardConfig,
    completions: Sequence[str],
    solutions: Sequence[str],
    lengths: Iterable[int] | None = None,
) -> Columns:
    """Score like `score`, but return plain numbers."""
    if lengths is None and any(name in LENGTH_REWARDS for name in config.functions):
        rule = "needs the completions' lengths in tokens"
        raise InputError("reward.functions", ", ".join(config.functions), rule)
    tokens = [0] * len(completions) if lengths is None else [int(length) for length in lengths]
    budget = Budget(TIMEOUTS_LIMIT_S * max(1.0, len(completions) / TIMEOUTS_PER))
    columns = Columns({}, {}, {}, {})
    for name, weight in zip(config.functions, config.weights, strict=True):
        reward, values = _reward(name, config, budget), list[float]()
        failures: list[tuple[bool, str]] = []  # True if the ground truth is unusable; the message
        for row in zip(completions, solutions, tokens, strict=True):
            try:
                values.append(_checked(reward(*row), weight))
            except KeyboardInterrupt:
                raise
            except BaseException as error:  # SystemExit too, which would end the stage with exit code 0
                values.append(0.0)
                failures.append((isinstance(error, UnscorableError), _describe_error(error)))
        columns.parts[name], columns.failures[name] = values, len(failures)
        columns.faults[name] = sum(not is_unusable for is_unusable, _ in failures)
        if failures:
            columns.messages[name] = min(failures, key=lambda failure: failure[0])[1]
    return columns


@dataclass
class Budget:
    """Time for calls that exceed their limit."""

    limit_s: float
    spent_s: float = 0.0


class UnusableError(Exception):
    """A function was not tried, or did not return one usable number for one completion."""


def _reward(name: str, config: RewardConfig, budget: Budget) -> Reward:
    """Return a reward function; maths and user functions get a time limit."""
    if name in LENGTH_REWARDS:
        length = config.length
        assert length is not None  # the table of rules requires it
        if name == "soft_overlong":
            return lambda text, truth, tokens: soft_overlong(tokens, length)
        right = _reward(length.correct_by, config, budget)
        return lambda text, truth, tokens: cosine(tokens, right(text, truth, tokens) > 0, length)
    if name in ITEM_REWARDS:
        item = ITEM_REWARDS[name]
    elif name == "maths":
        item = _limited(cast(ItemReward, user_function(MATHS)), budget)
    else:  # one completion at a time, so that one failure costs one reward
        function = user_function(name)
        item = _limited(lambda text, truth: _to_number(function([text], [truth])), budget)
    return lambda text, truth, tokens: item(text, truth)


def _checked(value: float, weight: float) -> float:
    """Return a reward; raise UnusableError if it is too large."""
    if not abs(value) * max(1.0, abs(weight)) <= LARGEST:
        raise UnusableError(f"returned {value}: times its weight it must be within ±{LARGEST:g}")
    return value


def _describe_error(error: BaseException) -> str:
    """Return an exception's text, and for errors of user code the line that raised it."""
    if isinstance(error, (UnscorableError, UnusableError, OutOfTimeError)):
        return str(error)
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: {error} ({Path(frame.filename).name}:{frame.lineno})"[:400]


def _limited(item: ItemReward, budget: Budget) -> ItemReward:
    def limited(completion: str, solution: str) -> float:
        left_s = budget.limit_s - budget.spent_s
        if left_s <= 0:
            raise UnusableError(f"not tried: calls over their limit took {budget.limit_s:g} s")
        began = time.monotonic()
        try:
            with time_limit(min(ANSWER_LIMIT_S, left_s)):
                return item(completion, solution)
        except OutOfTimeError:
            budget.spent_s += time.monotonic() - began
            raise

    return limited


def _to_number(returned: object) -> float:
    """Return the number that a function returned for one completion, or raise UnusableError."""
    shown = reprlib.repr(returned)
    if isinstance(returned, (str, bytes, Mapping)) or not isinstance(returned, Iterable):
        raise UnusableError(f"returned {shown}, not a list of numbers")
    values = list(returned)
    if len(values) != 1:
        raise UnusableError(f"returned {len(values)} numbers for 1 completion")
    try:
        value = float(values[0])
    except (TypeError, ValueError) as error:
        raise UnusableError(f"returned {shown}, which holds no number") from error
    if not math.isfinite(value):
        raise UnusableError(f"returned {value}, which is not finite")
    return value


@functools.cache
def user_function(name: str) -> UserReward:
    """Import the user's reward `module:function`.

    Raises:
        InputError: the module or function does not exist, or is not callable.
    """
    module_name, _, attribute = name.partition(":")
    try:
        function: Any = getattr(importlib.import_module(module_name), attribute)
    except (Exception, SystemExit) as error:  # a user's module may raise anything while it is imported
        rule, remedy = f"can't be imported: {_describe_error(error)}", "make it importable on PYTHONPATH"
        raise InputError("reward.functions", name, rule, remedy) from error
    if not callable(function):
        raise InputError("reward.functions", name, "must be a function of (completions, solutions)")
    return cast(UserReward, function)
