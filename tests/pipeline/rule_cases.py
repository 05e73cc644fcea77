"""Tables of rules: what each takes to be broken and to be kept, and whether a table has them all."""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import pytest

from pipeline.config import load
from stages.errors import ConfigError, Problem

DEFAULT = ("engine=local",)
NO_RULES = ("moving", "source_warnings")
"""Functions that make Problems which warn and refuse nothing."""


@dataclass(frozen=True)
class Rule:
    """One rule."""

    breaks: tuple[str, ...]
    path: str
    told: str
    """Part of the message."""
    keeps: tuple[str, ...]
    base: tuple[str, ...] = DEFAULT


def rule(breaks: str, path: str, told: str, keeps: str = "", base: tuple[str, ...] = DEFAULT) -> Rule:
    return Rule(tuple(breaks.split()), path, told, tuple(keeps.split()), base)


def problems(overrides: tuple[str, ...]) -> tuple[Problem, ...]:
    try:
        load(overrides)
    except ConfigError as error:
        return error.problems
    return ()


def places(module: ModuleType) -> Iterator[tuple[str, int, int]]:
    """(file, first line, last line) of every Problem that a module makes."""
    file = inspect.getsourcefile(module)
    assert file is not None
    tree = ast.parse(Path(file).read_text(encoding="utf-8"))
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef) and function.name not in NO_RULES:
            for node in ast.walk(function):
                if isinstance(node, ast.Call) and getattr(node.func, "id", None) == "Problem":
                    yield file, node.lineno, node.end_lineno or node.lineno


def check(one: Rule) -> None:
    """The configuration that breaks it is told so, and the one that keeps it breaks nothing."""
    broken = problems((*one.base, *one.breaks))
    assert any(problem.path == one.path and one.told in problem.rule for problem in broken), broken
    assert problems((*one.base, *one.keeps)) == ()


def without_entry(
    modules: tuple[ModuleType, ...],
    rules: Mapping[str, Rule],
    monkeypatch: pytest.MonkeyPatch,
    more: Callable[[], None] = lambda: None,
) -> list[str]:
    """Places of `modules` where a Problem is made that no entry of `rules`, nor `more`, comes to."""
    reached: set[tuple[str, int]] = set()
    original = Problem.__init__

    def note(self: Problem, *args: object, **kwargs: object) -> None:
        caller = sys._getframe(1)
        reached.add((caller.f_code.co_filename, caller.f_lineno))
        original(self, *args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(Problem, "__init__", note)
    for one in rules.values():
        problems((*one.base, *one.breaks))
    more()
    return [
        f"{Path(file).parent.name}/{Path(file).name}:{first}"
        for module in modules
        for file, first, last in places(module)
        if not any(seen == file and first <= line <= last for seen, line in reached)
    ]
