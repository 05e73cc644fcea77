"""Configuration of the reward."""

import difflib
import importlib.util
import re
from dataclasses import dataclass
from typing import Annotated

from stages.base.bounds import NonNegative
from stages.base.identity import NotInIdentity
from stages.base.rules import Broken, Rules, given, hold, indices, once
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
    length.py) or the user's `module:function`, called with (completions, solutions) and returning one number
    for each."""
    weights: tuple[float, ...]
    """One factor per function; mindrlhf's verifier_weight."""
    length: LengthConfig | None
    """Settings of the rewards by length; required if there is one."""
    max_failures: Annotated[NonNegative | None, NotInIdentity()] = None
    """Completions of a step for which one function may raise, take too long or return no finite number (they
    count 0); one more ends the run. The limit also holds for evaluate's prompts. null: a tenth of them."""
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


RULES = Rules[RewardConfig]("reward", "ours: stages/rewards")
"""Rules that import no user function."""
RULES.must("reward.functions", given("must name at least one function", "set it to [number]"))


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
    near = difflib.get_close_matches(name, BUILTIN, 1) or ["number"]
    return f"must be one of {', '.join(BUILTIN)}, or module:function", f"use {near[0]}"


RULES.must(
    "reward.files",
    hold(
        lambda config: not config.files or any(name not in BUILTIN for name in config.functions),
        "has no effect without a module:function in reward.functions",
        "set it to []",
    ),
)
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
