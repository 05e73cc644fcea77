"""Configuration of the reward."""

from __future__ import annotations

import importlib.util
import re
from dataclasses import dataclass

from stages.errors import Problem

BUILTIN = ("accuracy", "qwen_accuracy", "format", "answer_format", "maths")
DOTTED = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")


@dataclass(frozen=True)
class RewardConfig:
    """A weighted sum of reward functions."""

    functions: tuple[str, ...]
    """Built-in names (accuracy, qwen_accuracy, format, answer_format; maths with the package math-verify) or
    the user's `module:function`, called with (completions, solutions) and returning one number each."""
    weights: tuple[float, ...]
    """One factor per function; mindrlhf's verifier_weight."""


def check_reward(config: RewardConfig, path: str = "reward") -> list[Problem]:
    """Every cross-field rule that `config` breaks; imports no user function."""
    problems = []
    if not config.functions:
        problems.append(Problem(f"{path}.functions", [], "must name at least one function"))
    if len(config.weights) != len(config.functions):
        rule = f"must have one weight for each of the {len(config.functions)} functions"
        problems.append(Problem(f"{path}.weights", list(config.weights), rule))
    for i, name in enumerate(config.functions):
        if name not in BUILTIN and not DOTTED.fullmatch(name):
            rule = f"must be one of {', '.join(BUILTIN)}, or module:function"
            problems.append(Problem(f"{path}.functions[{i}]", name, rule))
        if name == "maths" and importlib.util.find_spec("math_verify") is None:
            rule = "needs the package math-verify"
            problems.append(Problem(f"{path}.functions[{i}]", name, rule, "pip install math-verify"))
        if name in config.functions[:i]:
            problems.append(Problem(f"{path}.functions[{i}]", name, "is named twice", "add up the weights"))
    return problems
