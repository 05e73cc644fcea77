"""Configuration of the reward."""

from __future__ import annotations

import difflib
import importlib.util
import re
from dataclasses import dataclass
from typing import Annotated

from annotated_types import Ge

from stages.base.errors import Problem
from stages.base.identity import NotInIdentity
from stages.rewards.length import LENGTH_REWARDS, LengthConfig

BUILTIN = ("accuracy", "qwen_accuracy", "format", "answer_format", "knights", "maths", *LENGTH_REWARDS)
DOTTED = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")


@dataclass(frozen=True)
class RewardConfig:
    """A weighted sum of reward functions."""

    functions: tuple[str, ...]
    """Built-in names (accuracy, qwen_accuracy, format, answer_format, knights; maths with the package
    math-verify; by length: soft_overlong, cosine) or the user's `module:function`, called with (completions,
    solutions) and returning one number each."""
    weights: tuple[float, ...]
    """One factor per function; mindrlhf's verifier_weight."""
    length: LengthConfig | None
    """For the rewards by length; None: there are none."""
    max_failures: Annotated[Annotated[int, Ge(0)] | None, NotInIdentity()] = None
    """Completions of a step for which one function may raise, take too long or return no finite number (they
    count 0); one more ends the run. Of evaluate's prompts as many, or a tenth. null: a tenth of a step."""


def check_reward(config: RewardConfig, path: str = "reward") -> list[Problem]:
    """Every cross-field rule that `config` breaks; imports no user function."""
    problems = []
    if not config.functions:
        problems.append(
            Problem(f"{path}.functions", [], "must name at least one function", "set it to [accuracy]")
        )
    if len(config.weights) != len(config.functions):
        rule = f"must have one weight for each of the {len(config.functions)} functions"
        problems.append(
            Problem(
                f"{path}.weights", list(config.weights), rule, f"set it to {[1.0] * len(config.functions)}"
            )
        )
    for i, name in enumerate(config.functions):
        if name not in BUILTIN and not DOTTED.fullmatch(name):
            rule = f"must be one of {', '.join(BUILTIN)}, or module:function"
            near = difflib.get_close_matches(name, BUILTIN, 1) or ["accuracy"]
            problems.append(Problem(f"{path}.functions[{i}]", name, rule, f"use {near[0]}"))
        if name == "maths" and importlib.util.find_spec("math_verify") is None:
            rule = "needs the package math-verify"
            problems.append(Problem(f"{path}.functions[{i}]", name, rule, "pip install math-verify"))
        if name in LENGTH_REWARDS and config.length is None:
            remedy = f"see conf/reward/{'dapo' if name == 'soft_overlong' else 'cosine'}.yaml"
            problems.append(Problem(f"{path}.length", None, f"is required for {name}", remedy))
        if name in config.functions[:i]:
            problems.append(Problem(f"{path}.functions[{i}]", name, "is named twice", "add up the weights"))
    pairs = {"correct": config.length.correct, "wrong": config.length.wrong} if config.length else {}
    for key, values in pairs.items():
        if len(values) != 2:
            rule = "must be two numbers: for no length, and for max_tokens"
            problems.append(Problem(f"{path}.length.{key}", list(values), rule, "give both, as in [1.0,0.5]"))
    return problems
