"""Configuration of the reward."""

import difflib
import importlib.util
import re
from dataclasses import dataclass
from typing import Annotated

from stages.base.bounds import NonNegative, PositiveFloat
from stages.base.identity import NotInIdentity
from stages.base.rules import Broken, Rules, given, hold, indices, once
from stages.rewards.functions import ITEM_REWARDS
from stages.rewards.length import LENGTH_REWARDS, LengthConfig

BUILTIN = (*ITEM_REWARDS, "maths", *LENGTH_REWARDS)
NUMBERS = "accuracy"
"""Function that compares the numbers of answers and ground truths."""
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


def uses(config: RewardConfig, name: str) -> bool:
    """Return True if a function is part of the reward, or tells right from wrong in it (cosine)."""
    by_length = config.length if "cosine" in config.functions else None
    return name in config.functions or (by_length is not None and by_length.correct_by == name)


def judge_of(config: RewardConfig | None) -> str:
    """Return the name of the reward's function for formulas or puzzles, else that for numbers."""
    return next((name for name in ("maths", "knights") if config is not None and uses(config, name)), NUMBERS)


RULES = Rules[RewardConfig]("reward", "ours: stages/rewards")
"""Rules that import no user function."""
RULES.must("reward.functions", given("must name at least one function", "set it to [accuracy]"))


@RULES.row("reward.weights")
def _weights(config: RewardConfig) -> Broken:
    """Require one weight for each reward function."""
    count = len(config.functions)
    if len(config.weights) == count:
        return None
    return f"must have one weight for each of the {count} functions", f"set it to {[1.0] * count}"


@RULES.row("reward.functions[{}]", each=indices("reward.functions"))
def _known(config: RewardConfig, index: int) -> Broken:
    """Require a built-in reward function, or module:function."""
    name = config.functions[index]
    if name in BUILTIN or DOTTED.fullmatch(name):
        return None
    near = difflib.get_close_matches(name, BUILTIN, 1) or ["accuracy"]
    return f"must be one of {', '.join(BUILTIN)}, or module:function", f"use {near[0]}"


RULES.must(
    "reward.functions",
    hold(
        lambda config: not uses(config, "maths") or importlib.util.find_spec("math_verify") is not None,
        "maths needs the package math-verify",
        "pip install math-verify",
    ),
    name="maths",
)


@RULES.row("reward.length", each=lambda config: config.functions)
def _length(config: RewardConfig, name: str) -> Broken:
    """Require the section for reward functions that depend on the length."""
    if name not in LENGTH_REWARDS or config.length is not None:
        return None
    example = "dapo" if name == "soft_overlong" else "cosine"
    return f"is required for {name}", f"see conf/reward/{example}.yaml"


RULES.must(
    "reward.functions[{}]",
    once("reward.functions", "add up the weights"),
    name="once",
    each=indices("reward.functions"),
)
RULES.must(
    "reward.length.{}",
    hold(
        lambda config, key: config.length is None or len(getattr(config.length, key)) == 2,
        "must be two numbers: for no length, and for max_tokens",
        "give both, as in [1.0,0.5]",
    ),
    name="two_numbers",
    each=("correct", "wrong"),
)
