"""The weighted reward of a batch of completions.

Each function of the user is called once with all of them (process.py). A completion for which a function
fails scores 0; `check_failures` refuses too many failures.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from stages.base.errors import InputError
from stages.rewards.config import BUILTIN, RewardConfig, uses
from stages.rewards.functions import ITEM_REWARDS, ItemReward, UnscorableError
from stages.rewards.length import LENGTH_REWARDS, LengthConfig, cosine, soft_overlong
from stages.rewards.messages import MATHS
from stages.rewards.process import PROCESS, Accepted, Batch, Failure, Outcome, Scored

if TYPE_CHECKING:
    from stages.weights.dtypes import Array

LARGEST = 1e18
"""Largest reward: its square, for a group's standard deviation, must be a float32."""


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
    late: dict[str, int] = field(default_factory=dict)
    """Function name -> faults because a time limit was exceeded."""
    single: dict[str, str] = field(default_factory=dict)
    """Function name -> why its values are those of calls with one completion each; other functions: none."""
    usage: dict[str, float] = field(default_factory=dict)
    """Requests, tokens and price of the reward judge, by the name of a metric; other rewards: none."""


@dataclass(frozen=True)
class RewardScores(Columns):
    """Rewards of B completions as arrays, with their weighted sum."""

    total: Array = field(kw_only=True)
    """Weighted sum [B], float32."""


def prepare(config: RewardConfig) -> list[Accepted]:
    """Import the user's functions, and maths; return the arguments that all functions accept.

    Raises:
        InputError: a function can't be imported, or the sandbox of `code` can't be made.
    """
    accepted = list(PROCESS.load(_called(config)).values())
    if config.judge is not None and "judge" in config.functions:
        accepted.append(Accepted(False, frozenset(config.judge.arguments), config.judge.columns))
    if config.code is not None and uses(config, "code"):
        from stages.rewards.code import check  # here: plans read this file and run no program

        check(config.code)
        accepted.append(Accepted(False, frozenset(filter(None, [config.code.tests])), ()))
    return accepted


def score(
    config: RewardConfig,
    completions: Sequence[str],
    solutions: Sequence[str],
    lengths: Iterable[int] | None = None,
    columns: Mapping[str, Sequence[Any]] | None = None,
) -> RewardScores:
    """Score B completions against their ground truths.

    Args:
        config: functions and weights.
        completions: B texts without end and padding tokens.
        solutions: B ground truths, as decoded from pretrain_ids.
        lengths: tokens of each completion, its end token included; needed for rewards by length.
        columns: further arguments of user functions by name, with B values each: prompts, and columns of the
            dataset. A function gets those that it accepts.

    Raises:
        InputError: a user's function can't be imported or does not return B values, or `lengths` is needed.
    """
    import numpy as np  # here: plans score without it

    scored = score_each(config, completions, solutions, lengths, columns)
    parts = {name: np.array(values, np.float32) for name, values in scored.parts.items()}
    return RewardScores(**{**vars(scored), "parts": parts}, total=weighted(config, parts))


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
            if 2 * scores.late.get(name, 0) >= faults:
                remedy = f"raise reward.timeout_s={config.timeout_s:g}, or make the function faster"
            if name == "judge":
                remedy = "raise reward.judge.timeout_s, or lower reward.judge.concurrency"
            if name == "code":
                remedy = "check reward.code.tests and the tests in the dataset"
            raise InputError("reward.functions", name, rule, remedy)


def score_each(
    config: RewardConfig,
    completions: Sequence[str],
    solutions: Sequence[str],
    lengths: Iterable[int] | None = None,
    columns: Mapping[str, Sequence[Any]] | None = None,
) -> Columns:
    """Score like `score`, but return plain numbers."""
    return columns_of(outcomes_of(config, completions, solutions, lengths, columns))


def outcomes_of(
    config: RewardConfig,
    completions: Sequence[str],
    solutions: Sequence[str],
    lengths: Iterable[int] | None = None,
    columns: Mapping[str, Sequence[Any]] | None = None,
) -> dict[str, Scored]:
    """Score like `score`, but return the outcome of each completion by function."""
    if lengths is None and any(name in LENGTH_REWARDS for name in config.functions):
        rule = "needs the completions' lengths in tokens"
        raise InputError("reward.functions", ", ".join(config.functions), rule)
    tokens = [0] * len(completions) if lengths is None else [int(length) for length in lengths]
    batch = Batch(completions, solutions, columns or {})
    names = _called(config)
    called = PROCESS.score(names, batch, config.timeout_s) if names else {}
    scored = dict[str, Scored]()
    for name, weight in zip(config.functions, config.weights, strict=True):
        path, single, usage = MATHS if name == "maths" else name, "", dict[str, float]()
        if path in called:
            outcomes, single = called[path].outcomes, called[path].single
        elif name in ITEM_REWARDS:
            outcomes = _of_each(ITEM_REWARDS[name], batch)
        elif name == "judge":
            assert config.judge is not None  # as the length below
            from stages.rewards.judge import judge  # here: it imports a client, which a plan does not need

            judged = judge(config.judge, batch)
            outcomes, usage = judged.outcomes, dict(judged.usage)
        elif name == "code":
            assert config.code is not None
            from stages.rewards.code import code

            outcomes = code(config.code, batch)
        else:
            assert config.length is not None  # the table of rules requires it
            outcomes = _by_length(name, config.length, tokens, batch, called)
        scored[name] = Scored([_checked(outcome, weight) for outcome in outcomes], single, usage)
    return scored


def columns_of(scored: Mapping[str, Scored]) -> Columns:
    """Return the values of outcomes by function, and the numbers and first messages of their failures."""
    columns = Columns({}, {}, {}, {})
    for name, each in scored.items():
        failures = [outcome for outcome in each.outcomes if isinstance(outcome, Failure)]
        faults = [failure for failure in failures if not failure.is_unusable]
        columns.parts[name] = [0.0 if isinstance(outcome, Failure) else outcome for outcome in each.outcomes]
        columns.failures[name], columns.faults[name] = len(failures), len(faults)
        columns.late[name] = sum(failure.is_late for failure in faults)
        if failures:
            columns.messages[name] = (faults or failures)[0].message
        if each.single:
            columns.single[name] = each.single
        for key, amount in each.usage.items():
            columns.usage[key] = columns.usage.get(key, 0) + amount
    return columns


def _called(config: RewardConfig) -> list[str]:
    """Return the functions that run in a process of their own: the user's, and maths."""
    users = [name for name in config.functions if name not in BUILTIN]
    return [*users, MATHS] if uses(config, "maths") else users


def _of_each(function: ItemReward, batch: Batch) -> list[Outcome]:
    """Return the outcomes of a built-in function of one completion."""
    outcomes = list[Outcome]()
    for completion, solution in zip(batch.completions, batch.solutions, strict=True):
        try:
            outcomes.append(function(completion, solution))
        except Exception as error:
            is_unusable = isinstance(error, UnscorableError)
            message = str(error) if is_unusable else f"{type(error).__name__}: {error}"
            outcomes.append(Failure(message, is_unusable))
    return outcomes


def _by_length(
    name: str, length: LengthConfig, tokens: Sequence[int], batch: Batch, called: Mapping[str, Scored]
) -> list[Outcome]:
    """Return the outcomes of a reward by length; `called`: those of maths, if it tells right from wrong."""
    if name == "soft_overlong":
        return [soft_overlong(count, length) for count in tokens]
    is_maths = length.correct_by == "maths"
    right = called[MATHS].outcomes if is_maths else _of_each(ITEM_REWARDS[length.correct_by], batch)
    return [
        value if isinstance(value, Failure) else cosine(count, value > 0, length)
        for count, value in zip(tokens, right, strict=True)
    ]


def _checked(outcome: Outcome, weight: float) -> Outcome:
    """Return an outcome; a failure if its value is too large."""
    if isinstance(outcome, Failure) or abs(outcome) * max(1.0, abs(weight)) <= LARGEST:
        return outcome
    return Failure(f"returned {outcome}: times its weight it must be within ±{LARGEST:g}")
