"""Rules about a configuration key, as text, read from the source of the functions that check them.

A rule is a call of Problem or of a function of stages/base/checks.py, whose first argument is the key. Names
are replaced by what the function assigned to them before; what is computed at run time is shown as "…".
"""

from __future__ import annotations

import ast
import functools
import importlib.util
import itertools
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from pipeline.config.sections import Config
from stages import engines
from stages.base.errors import as_override

MODULES = (
    "pipeline.config.rules", "pipeline.config.store_path", "stages.grpo.rules", "stages.models.config",
    "stages.models.families", "stages.tokenize.config", "stages.rewards.config", "stages.fetch.config",
    "stages.fetch.sources", "stages.weights.config", "stages.engines.layout_rules",
)  # fmt: skip
"""Modules with rules of all engines."""
CONDITIONS = {
    "Problem": ("path value rule remedy source", "{rule}"),
    "equal": ("path value required why source remedy", "must be {required}: {why}"),
    "at_least": ("path value least name why source remedy", "must be at least {name}{least}: {why}"),
    "at_most": ("path value most name why source remedy", "must be at most {name}{most}: {why}"),
    "multiple_of": ("path value parts name why source remedy", "must be a multiple of {name}{parts}: {why}"),
    "divides": ("path value whole name why source remedy", "must divide {name}{whole}: {why}"),
}
"""Function -> its parameters in order, and the rule that it states."""
NUMBERS = ("least", "most", "parts", "whole")
UNKNOWN = "…"


@dataclass(frozen=True)
class RuleText:
    """One rule as it stands in the source."""

    path: re.Pattern[str]
    """Pattern of the keys that it checks."""
    text: str
    """Rule, and its source in parentheses."""


def rules_about(key: str, config: Config) -> tuple[str, ...]:
    """Return the rules that check a key, without repetition."""
    modules = [*MODULES, *(_module_of(name) for name in (engine.name for engine in engines.chosen(config)))]
    found = (rule for module in modules for rule in _rules(module) if rule.path.fullmatch(key))
    return tuple(dict.fromkeys(rule.text for rule in found))


def _module_of(engine: str) -> str:
    return "stages.engines.local" if engine == "local" else f"stages.engines.{engine}.rules"


@functools.cache
def _rules(module: str) -> tuple[RuleText, ...]:
    """Return the rules in a module's source; none if there is no such module."""
    spec = importlib.util.find_spec(module)
    if spec is None or spec.origin is None:
        return ()
    tree = ast.parse(Path(spec.origin).read_text(encoding="utf-8"))
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    return tuple(rule for function in functions for rule in _rules_of(function))


def _rules_of(function: ast.FunctionDef) -> Iterator[RuleText]:
    """Yield the rules that a function states; those of a loop over constants once for each."""
    calls = [node for node in ast.walk(function) if isinstance(node, ast.Call)]
    for call in calls:
        name = call.func.id if isinstance(call.func, ast.Name) else ""
        if name not in CONDITIONS or not call.args:
            continue
        parameters, text = CONDITIONS[name]
        given = dict(zip(parameters.split(), call.args, strict=False))
        given |= {keyword.arg: keyword.value for keyword in call.keywords if keyword.arg}
        for items in itertools.product(*_loops(function, call)):
            known = {**_assigned(function, call.lineno), **dict(itertools.chain(*items))}
            words = {parameter: _text(value, known) for parameter, value in given.items()}
            if rule := _rule(words, text):
                yield rule


def _rule(words: dict[str, str], text: str) -> RuleText | None:
    """Return a rule from the texts of a call's arguments; None if key or rule are only known to a run."""
    named = words.get("name") not in ("", None)
    shown = words | {number: "" for number in NUMBERS if named and number in words}
    rule, path = text.format(**shown).removesuffix(": "), words["path"]
    if UNKNOWN in (path, rule):
        return None
    source = f" ({words['source']})" if words.get("source") else ""
    pattern = re.escape(path).replace(re.escape(UNKNOWN), r"[^.]+")
    return RuleText(re.compile(rf"{pattern}(\[\d+\])?"), f"{rule}{source}")


def _loops(function: ast.FunctionDef, call: ast.Call) -> Iterator[list[list[tuple[str, ast.expr]]]]:
    """Yield, for each loop over constants around a call, the names of each pass with their values."""
    for loop in ast.walk(function):
        if isinstance(loop, ast.For) and call in ast.walk(loop) and isinstance(loop.iter, ast.Tuple):
            names = loop.target.elts if isinstance(loop.target, ast.Tuple) else [loop.target]
            rows = [item.elts if isinstance(item, ast.Tuple) else [item] for item in loop.iter.elts]
            yield [
                [
                    (name.id, value)
                    for name, value in zip(names, row, strict=False)
                    if isinstance(name, ast.Name)
                ]
                for row in rows
            ]


def _assigned(function: ast.FunctionDef, line: int) -> Mapping[str, ast.expr]:
    """Return the last value that each name got in a function before a line."""
    found: dict[str, ast.expr] = {}
    nodes = [node for node in ast.walk(function) if isinstance(node, ast.Assign) and node.lineno <= line]
    for node in sorted(nodes, key=lambda node: node.lineno):
        target, value = node.targets[0], node.value
        if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
            pairs = zip(target.elts, value.elts, strict=True)
            found |= {name.id: part for name, part in pairs if isinstance(name, ast.Name)}
        elif isinstance(target, ast.Name):
            found[target.id] = value
    return found


def _text(value: ast.expr, known: Mapping[str, ast.expr]) -> str:
    """Return an expression as text, with "…" for what only a run knows."""
    if isinstance(value, ast.Constant):
        return str(value.value) if isinstance(value.value, str) else as_override(value.value)
    if isinstance(value, ast.Name) and value.id in known:
        return _text(known[value.id], {name: kept for name, kept in known.items() if name != value.id})
    if isinstance(value, ast.JoinedStr):
        return "".join(
            str(part.value) if isinstance(part, ast.Constant) else _placeholder(part, known)
            for part in value.values
        )
    return UNKNOWN


def _placeholder(part: ast.expr, known: Mapping[str, ast.expr]) -> str:
    assert isinstance(part, ast.FormattedValue)
    return _text(part.value, known)
