"""Rules between configuration keys. A rule is one row: key, condition, source and remedy.

The tables stand next to the sections and engines that they are about. Plan checks them against a run's
configuration, a stage against the sections that it is given, and tests contain a breaking and a passing case
of each row.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from stages.base.errors import ConfigError, Problem, as_override

T = TypeVar("T")
P = TypeVar("P")
F = TypeVar("F", bound=Callable[..., "Broken"])
Broken = tuple[str, str] | tuple[str, str, object] | None
"""Rule and remedy, and the value to show if it is not the value of the key; None if the rule holds."""
Test = Callable[..., Broken]
"""Function of the key's value, the subject, and the current item of `each`."""
Number = int | str | Callable[..., int]
"""A number, the key that contains it, or a function that computes it from the subject."""
_STEP = re.compile(r"[\w-]+")


@dataclass(frozen=True)
class Row:
    """One rule."""

    id: str
    """Name of the table and of the rule."""
    path: str
    """Key; {} stands for each of `each`."""
    test: Test
    source: str
    """File or paper that the rule follows from, or "ours" and the reason."""
    text: str
    each: Callable[[Any], Iterable[object]] | None
    when: Callable[..., bool] | None
    value: Callable[..., Any] | None
    unless: tuple[str, ...]

    def check(self, subject: object, item: tuple[object, ...]) -> Problem | None:
        """Return the problem if `subject` breaks the rule."""
        if self.when is not None and not self.when(subject, *item):
            return None
        path = self.path.format(*item)
        value = self.value(subject, *item) if self.value else value_at(subject, path)
        if (broken := self.test(value, subject, *item)) is None:
            return None
        rule, remedy, *shown = broken
        return Problem(path, shown[0] if shown else value, rule, remedy, self.source, self.id)


class Rules(Generic[T]):
    """Table of rules about a subject such as a section, a job or a run."""

    def __init__(self, name: str, source: str = "") -> None:
        """Create an empty table; `name` is the start of the rows' ids, `source` that of rows without one."""
        self.name, self._source = name, source
        self._rows: dict[str, Row] = {}
        self._entries: list[Row | tuple[Rules[Any], Callable[[T], Any]]] = []

    def must(
        self,
        path: str,
        test: Test,
        source: str = "",
        *,
        name: str = "",
        text: str | None = None,
        each: Callable[[T], Iterable[object]] | Iterable[object] | None = None,
        when: Callable[..., bool] | None = None,
        value: Callable[..., Any] | None = None,
        unless: tuple[str, ...] = (),
    ) -> None:
        """Add a row.

        Args:
            path: the key; {} stands for each of `each`.
            test: the condition: be, at_most, multiple_of, ...
            source: file or paper that the rule follows from; shown in parentheses.
            name: end of the id; by default the last step of the key.
            text: one sentence for users; by default the first line of the condition's docstring.
            each: items that the rule is checked for, one after the other.
            when: function of subject and item; if it returns False, the rule is not checked.
            value: function of subject and item that replaces the key's value.
            unless: names of earlier rows; if one of them is broken, this row is not checked.
        """
        name = name or _STEP.findall(path)[-1]
        if name in self._rows or not set(unless) <= set(self._rows):
            raise ValueError(f"{self.name}.{name}: duplicate name, or unless names no earlier row")
        items = each if each is None or callable(each) else lambda subject, items=tuple(each): items
        text, source = (text or test.__doc__ or "").partition("\n")[0].rstrip("."), source or self._source
        row = Row(f"{self.name}.{name}", path, test, source, text, items, when, value, unless)
        self._rows[name] = row
        self._entries.append(row)

    def row(self, path: str, source: str = "", **options: Any) -> Callable[[F], F]:
        """Add a function as a row; its name is the end of the id, its docstring the text."""

        def add(function: F) -> F:
            test = _describe(lambda value, *details: function(*details), function.__doc__ or "")
            self.must(path, test, source, name=function.__name__.strip("_"), **options)
            return function

        return add

    def include(self, table: Rules[P], part: Callable[[T], P | None]) -> None:
        """Check another table, too, with a part of the subject; skip it if the part is None."""
        self._entries.append((table, part))

    def rows(self) -> Iterator[Row]:
        """Yield all rows in order, with those of included tables."""
        for entry in self._entries:
            yield from (entry,) if isinstance(entry, Row) else entry[0].rows()

    def check(self, subject: T) -> list[Problem]:
        """Return a problem for every rule that `subject` breaks."""
        problems: list[Problem] = []
        broken: dict[str, list[tuple[object, ...]]] = {}
        for entry in self._entries:
            if not isinstance(entry, Row):
                table, part = entry
                if (about := part(subject)) is not None:
                    problems += table.check(about)
                continue
            for item in ((),) if entry.each is None else [(value,) for value in entry.each(subject)]:
                earlier = [items for name in entry.unless for items in broken.get(name, ())]
                if any(items in ((), item) or not item for items in earlier):
                    continue
                if problem := entry.check(subject, item):
                    broken.setdefault(entry.id.rpartition(".")[2], []).append(item)
                    problems.append(problem)
        return problems

    def demand(self, subject: T) -> None:
        """Raise ConfigError with all problems if `subject` breaks a rule."""
        if problems := self.check(subject):
            raise ConfigError(problems)


def value_at(subject: object, path: str) -> Any:
    """Return the value of a key, with lists as in YAML; None if there is no such key.

    The first step may be the name of the subject itself if that is a single section.
    """
    first, *steps = _STEP.findall(path)
    for step in [first, *steps] if hasattr(subject, first) else steps:
        if isinstance(subject, tuple):
            subject = subject[int(step)]
        else:
            subject = subject.get(step) if isinstance(subject, Mapping) else getattr(subject, step, None)
    return list(subject) if isinstance(subject, tuple) else subject


def be(required_value: object, why: str = "", remedy: str = "") -> Test:
    """Require the value to equal `required_value`, or its result if it is a function of the subject."""

    def test(value: object, *args: Any) -> Broken:
        target = required_value(*args) if callable(required_value) else required_value
        if value == (list(target) if isinstance(target, tuple) else target):
            return None
        shown = as_override(target) or "''"
        return _with_reason(f"must be {shown}", why), remedy or f"set it to {shown}"

    fixed = (
        "the value that follows from other keys" if callable(required_value) else as_override(required_value)
    )
    return _describe(test, _with_reason(f"must be {fixed or 'empty'}", why))


def _compare(
    holds: Callable[[int, int], bool], words: str, nearest: Callable[[int, int], object]
) -> Callable[..., Test]:
    """Return a factory of tests that compare the value with a number.

    Arguments of the factory: the number, its name in messages, the reason, and the remedy; by default the
    remedy is the nearest valid value.
    """

    def compare(number: Number, label: str = "", why: str = "", remedy: str = "") -> Test:
        def test(value: int, *args: Any) -> Broken:
            count, name = _number(number, label, args)
            if holds(value, count):
                return None
            return _with_reason(f"must {words} {name}", why), remedy or f"use {nearest(value, count)}"

        name = label.replace("={}", "").replace("{}", "N") or ("N" if callable(number) else str(number))
        return _describe(test, _with_reason(f"must {words} {name}", why))

    return compare


at_most = _compare(lambda value, most: value <= most, "be at most", lambda value, most: f"at most {most}")
at_least = _compare(lambda value, least: value >= least, "be at least", lambda value, least: least)
multiple_of = _compare(
    lambda value, parts: value % parts == 0,
    "be a multiple of",
    lambda value, parts: -(-value // parts) * parts,
)
divide = _compare(
    lambda value, multiple: multiple % value == 0,
    "divide",
    lambda value, multiple: next(
        divisor for divisor in range(min(value, multiple), 0, -1) if multiple % divisor == 0
    ),
)


def hold(holds: Callable[..., bool], rule: str, remedy: str) -> Test:
    """Require a predicate of the subject to be true."""
    return _describe(lambda value, *args: None if holds(*args) else (rule, remedy), rule)


def given(rule: str, remedy: str) -> Test:
    """Require a value other than null and an empty list."""
    return _describe(lambda value, *args: (rule, remedy) if value in (None, []) else None, rule)


def indices(path: str) -> Callable[[Any], Iterable[object]]:
    """Return a function for `each` that returns the indices of the list at a key."""
    return lambda subject: range(len(value_at(subject, path)))


def once(path: str, remedy: str = "name it once") -> Test:
    """Require an item of the list at `path` not to occur earlier in the list."""

    def test(value: object, subject: object, index: int) -> Broken:
        return ("is named twice", remedy) if value in value_at(subject, path)[:index] else None

    return _describe(test, "Require an item that is not named twice")


def _number(number: Number, label: str, args: tuple[Any, ...]) -> tuple[int, str]:
    """Return a limit and its name in messages."""
    count = value_at(args[0], number) if isinstance(number, str) else number
    count = count(*args) if callable(count) else count
    name = label or (number if isinstance(number, str) else "")
    if "{}" in name:
        return count, name.format(count)
    return count, f"{name}{' = ' if ' ' in name else '='}{count}" if name else str(count)


def _describe(test: Test, text: str) -> Test:
    """Set the docstring of a condition, which is the text of its rows."""
    test.__doc__ = text
    return test


def _with_reason(rule: str, why: str) -> str:
    return f"{rule}: {why}" if why else rule
