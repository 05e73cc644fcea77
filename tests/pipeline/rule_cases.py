"""Tables of rules: what each takes to be broken and to be kept, and whether a table has them all."""

from __future__ import annotations

import ast
import inspect
import itertools
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import pytest

from pipeline.config.load import load
from stages.base.errors import ConfigError, Problem

DEFAULT = ("engine=local",)
NO_RULES = ("moving", "source_warnings", "check_resumed", "rehearsed")
"""Functions that make Problems which warn and refuse nothing, or need more than a configuration."""


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


@dataclass(frozen=True)
class Place:
    """Where a Problem is made, once for each key that a loop over a table there gives it."""

    file: str
    first: int
    last: int
    path: re.Pattern[str]
    """What its path looks like; what is not written there may be anything."""

    def __str__(self) -> str:
        return f"{Path(self.file).parent.name}/{Path(self.file).name}:{self.first} {self.path.pattern}"


def places(module: ModuleType) -> list[Place]:
    """Of every Problem that a module makes."""
    file = inspect.getsourcefile(module)
    assert file is not None
    found: dict[Place, None] = {}

    def visit(node: ast.AST, rows: tuple[ast.For, ...]) -> None:
        if isinstance(node, ast.FunctionDef) and node.name in NO_RULES:
            return
        if isinstance(node, ast.For) and isinstance(node.iter, ast.Tuple):
            rows = (*rows, node)
        if isinstance(node, ast.Call) and getattr(node.func, "id", None) == "Problem":
            last = node.end_lineno or node.lineno
            for path in _paths(node.args[0], rows):
                found[Place(file, node.lineno, last, re.compile(path))] = None
        for child in ast.iter_child_nodes(node):
            visit(child, rows)

    visit(ast.parse(Path(file).read_text(encoding="utf-8")), ())
    return list(found)


def _paths(path: ast.expr, loops: tuple[ast.For, ...]) -> Iterator[str]:
    """A pattern for each row of the tables that `path` stands in loops over."""
    bound = [[_constants(loop.target, row) for row in loop.iter.elts] for loop in loops]  # type: ignore[attr-defined]
    for rows in itertools.product(*bound):
        yield _pattern(path, {name: value for row in rows for name, value in row.items()})


def _constants(target: ast.expr, row: ast.expr) -> dict[str, object]:
    """Names that one row of a table gives a constant."""
    if isinstance(target, ast.Tuple) and isinstance(row, ast.Tuple):
        pairs = (_constants(one, other) for one, other in zip(target.elts, row.elts, strict=True))
        return {name: value for pair in pairs for name, value in pair.items()}
    if isinstance(target, ast.Name) and isinstance(row, ast.Constant):
        return {target.id: row.value}
    return {}


def _pattern(path: ast.expr, known: Mapping[str, object]) -> str:
    if isinstance(path, ast.Constant):
        return re.escape(str(path.value))
    if isinstance(path, ast.Name) and path.id in known:
        return re.escape(str(known[path.id]))
    if isinstance(path, ast.JoinedStr):
        return "".join(_pattern(part, known) for part in path.values)
    return _pattern(path.value, known) if isinstance(path, ast.FormattedValue) else ".*"


def check(one: Rule) -> None:
    """The configuration that breaks it is told so, and the one that keeps it breaks nothing."""
    told = found(one)
    assert told, problems((*one.base, *one.breaks))
    assert all(problem.remedy for problem in told), told
    assert problems((*one.base, *one.keeps)) == ()


def found(one: Rule) -> list[Problem]:
    """What the configuration that breaks a rule is told of it."""
    broken = problems((*one.base, *one.breaks))
    return [problem for problem in broken if problem.path == one.path and one.told in problem.rule]


SOURCE = re.compile(r"\.(py|yaml|md|json)\b|arXiv:\d|\(ours: .+\)")
"""A file that decides it, a paper, or our own reason."""


def without_source(rules: Mapping[str, Rule]) -> list[str]:
    """What is told without saying where it comes from."""
    return [
        str(problem) for one in rules.values() for problem in found(one) if not SOURCE.search(problem.rule)
    ]


def without_entry(
    modules: tuple[ModuleType, ...],
    rules: Mapping[str, Rule],
    monkeypatch: pytest.MonkeyPatch,
    more: Callable[[], None] = lambda: None,
) -> list[str]:
    """Places of `modules`, and keys there, of which no entry of `rules`, nor `more`, makes a Problem."""
    reached: set[tuple[str, int, str]] = set()
    original = Problem.__init__

    def note(self: Problem, *args: object, **kwargs: object) -> None:
        caller = sys._getframe(1)
        original(self, *args, **kwargs)  # type: ignore[arg-type]
        reached.add((caller.f_code.co_filename, caller.f_lineno, self.path))

    monkeypatch.setattr(Problem, "__init__", note)
    for one in rules.values():
        problems((*one.base, *one.breaks))
    more()
    return [
        str(place)
        for module in modules
        for place in places(module)
        if not any(
            seen == place.file and place.first <= line <= place.last and place.path.fullmatch(path)
            for seen, line, path in reached
        )
    ]
