"""Configuration of the reward."""

import difflib
import importlib.util
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

from stages.base.bounds import NonNegative, PositiveFloat
from stages.base.errors import Problem
from stages.base.identity import NotInIdentity
from stages.rewards.functions import ITEM_REWARDS
from stages.rewards.length import LENGTH_REWARDS, LengthConfig

BUILTIN = (*ITEM_REWARDS, "maths", *LENGTH_REWARDS)
JUDGES = ("maths", "knights", "number")
"""Functions that tell right from wrong answers, the first that the reward uses."""
OF_MINDRLHF = ("accuracy", "qwen_accuracy")
"""mindrlhf's functions for numbers, which compare them as text."""
DOTTED = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")


@dataclass(frozen=True)
class RewardConfig:
    """A weighted sum of reward functions."""

    functions: tuple[str, ...]
    """Built-in names (ITEM_REWARDS in functions.py; maths with the package math-verify; LENGTH_REWARDS in
    length.py) or the user's `module:function`. It is called once per step with all completions and ground
    truths, and by name with those of the prompts and the dataset's columns that it accepts; it returns one
    number for each completion, or None for one that it can't score."""
    weights: tuple[float, ...]
    """One factor per function; mindrlhf's verifier_weight."""
    length: LengthConfig | None
    """Settings of the rewards by length; required if there is one."""
    max_failures: Annotated[NonNegative | None, NotInIdentity()] = None
    """Completions of a step for which one function may raise, take too long or return no finite number (they
    count 0); one more ends the run. The limit also holds for evaluate's prompts. null: a tenth of them."""
    timeout_s: Annotated[PositiveFloat, NotInIdentity()] = 60.0
    """Seconds for one call of a user's function. If a call with all completions raises or takes longer, they
    are scored one by one to find those that fail, for five times as long in total. maths compares one answer
    at a time, for a twelfth of it."""
    files: Annotated[tuple[str, ...], NotInIdentity()] = ()
    """Files that the user's functions read while they run: their content is fingerprinted, as the functions'
    own files are."""


def uses(config: RewardConfig, name: str) -> bool:
    """Return True if a function is part of the reward, or tells right from wrong in it (cosine)."""
    by_length = config.length if "cosine" in config.functions else None
    return name in config.functions or (by_length is not None and by_length.correct_by == name)


def judge_of(config: RewardConfig | None) -> str:
    """Return the function that tells right from wrong answers in accuracies.

    It is the one that the reward uses: accuracy for mindrlhf's functions, so that rewards and accuracies of
    its runs agree; number if the reward has none.
    """
    if config is None:
        return "number"
    mindrlhf = "accuracy" if any(uses(config, name) for name in OF_MINDRLHF) else "number"
    return next((name for name in JUDGES if uses(config, name)), mindrlhf)


def problems(config: RewardConfig) -> Iterator[Problem]:
    """Yield problems of the section reward; imports no user function."""
    source, names = "ours: stages/rewards", config.functions
    if not names:
        rule = "must name at least one function"
        yield Problem("reward.functions", [], rule, "set it to [number]", source)
    if len(config.weights) != len(names):
        rule = f"must have one weight for each of the {len(names)} functions"
        remedy = f"set it to {[1.0] * len(names)}"
        yield Problem("reward.weights", list(config.weights), rule, remedy, source)
    for index in range(len(names)):
        yield from _function_problems(config, index)
    if config.files and all(name in BUILTIN for name in names):
        rule = "has no effect without a module:function in reward.functions"
        yield Problem("reward.files", list(config.files), rule, "set it to []", source)
    if uses(config, "maths") and importlib.util.find_spec("math_verify") is None:
        rule = "maths needs the package math-verify"
        yield Problem("reward.functions", list(names), rule, "pip install 'grpoflow[maths]'", source)
    if config.length is not None:
        for key, ends in (("correct", config.length.correct), ("wrong", config.length.wrong)):
            if len(ends) != 2:
                rule = "must be two numbers: for no length, and for max_tokens"
                yield Problem(f"reward.length.{key}", list(ends), rule, "give both, as in [1.0,0.5]", source)


def _function_problems(config: RewardConfig, index: int) -> Iterator[Problem]:
    """Yield problems of one function of the reward."""
    name, source = config.functions[index], "ours: stages/rewards"
    path = f"reward.functions[{index}]"
    if name not in BUILTIN and not DOTTED.fullmatch(name):
        near = difflib.get_close_matches(name, BUILTIN, 1) or ["number"]
        rule = f"must be one of {', '.join(BUILTIN)}, or module:function"
        yield Problem(path, name, rule, f"use {near[0]}", source)
    if name in config.functions[:index]:
        yield Problem(path, name, "is named twice", "add up the weights", source)
    if name in LENGTH_REWARDS and config.length is None:
        example = "dapo" if name == "soft_overlong" else "cosine"
        rule, remedy = f"is required for {name}", f"see conf/reward/{example}.yaml"
        yield Problem("reward.length", None, rule, remedy, source)
