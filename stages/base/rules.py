"""A rule is one row: which key, what must hold, where that stands, and what to do about it.

A table holds the rows of one room. Plan, the stages and the tests read the same tables: plan asks them of a
run's configuration, a stage of what it is handed, and the tests have a breaking and a keeping case of each
row.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from stages.base.errors import ConfigError, Problem, as_override

T = TypeVar("T")
P = TypeVar("P")
F = TypeVar("F", bound=Callable[..., "Broken"])
Broken = tuple[str, str] | tuple[str, str, object] | None
"""The rule and the remedy, and the value where it is not what stands at the path; None: it holds."""
Test = Callable[..., Broken]
"""Told the value, the subject, and which of `each` it is about."""
Number = int | str | Callable[..., int]
"""Itself, the key that holds it, or what makes it of the subject."""
_STEP = re.compile(r"[\w-]+")


@dataclass(frozen=True)
class Row:
    """One rule."""

    id: str
    """Room and name."""
    path: str
    """The key; {} stands for each of `each`."""
    test: Test
    source: str
    """Source: a file that decides it, a paper, or "ours" and the reason."""
    each: Callable[[Any], Iterable[object]] | None
    when: Callable[..., bool] | None
    value: Callable[..., Any] | None
    unless: tuple[str, ...]


class Rules(Generic[T]):
    """The rows of one room, about a subject such as a section, a job or a run."""

    def __init__(self, room: str, source: str = "") -> None:
        """Create an empty table.

        Args:
            room: begins the rows' ids.
            source: of rows that give none of their own.
        """
        self._room, self._source = room, source
        self._rows: dict[str, Row] = {}
        self._entries: list[Row | tuple[Rules[Any], Callable[[T], Any]]] = []

    def must(
        self,
        path: str,
        test: Test,
        source: str = "",
        *,
        name: str = "",
        each: Callable[[T], Iterable[object]] | Iterable[object] | None = None,
        when: Callable[..., bool] | None = None,
        value: Callable[..., Any] | None = None,
        unless: tuple[str, ...] = (),
    ) -> None:
        """Add a row.

        Args:
            path: the key; {} stands for each of `each`.
            test: what must hold: be, at_most, multiple_of ...
            source: where that stands; told in parentheses.
            name: ends the id; the key's own unless given.
            each: what the row is asked about, one after the other.
            when: whether it is asked at all, told the subject and which of `each`.
            value: what holds in the key's place, told the same; what stands there unless given.
            unless: names of earlier rows whose finding it would only repeat.
        """
        name = name or _STEP.findall(path)[-1]
        if name in self._rows or not set(unless) <= set(self._rows):
            raise ValueError(f"{self._room}.{name}: named twice, or after a row that is not there")
        items = each if each is None or callable(each) else lambda subject, items=tuple(each): items
        row = Row(f"{self._room}.{name}", path, test, source or self._source, items, when, value, unless)
        self._rows[name] = row
        self._entries.append(row)

    def row(self, path: str, source: str = "", **more: Any) -> Callable[[F], F]:
        """Make a function a row: its name ends the id; told the subject, and which of `each`."""

        def add(function: F) -> F:
            name = function.__name__.strip("_")
            self.must(path, lambda value, *details: function(*details), source, name=name, **more)
            return function

        return add

    def include(self, table: Rules[P], part: Callable[[T], P | None]) -> None:
        """Ask the rows of another table too, of a part of the subject; of None nothing is asked."""
        self._entries.append((table, part))

    def rows(self) -> Iterator[Row]:
        """All rows, in order, those of included tables too."""
        for entry in self._entries:
            yield from (entry,) if isinstance(entry, Row) else entry[0].rows()

    def check(self, subject: T) -> list[Problem]:
        """Return a problem for every rule that `subject` breaks."""
        problems: list[Problem] = []
        broken: dict[str, list[tuple[object, ...]]] = {}
        for entry in self._entries:
            if isinstance(entry, Row):
                for item in ((),) if entry.each is None else [(value,) for value in entry.each(subject)]:
                    earlier = [item_found for name in entry.unless for item_found in broken.get(name, ())]
                    if any(item_found in ((), item) or not item for item_found in earlier):
                        continue
                    if problem := _problem_of_row(entry, subject, item):
                        broken.setdefault(entry.id.rpartition(".")[2], []).append(item)
                        problems.append(problem)
            elif (about := entry[1](subject)) is not None:
                problems += entry[0].check(about)
        return problems

    def demand(self, subject: T) -> None:
        """Refuse `subject` with every rule that it breaks.

        Raises:
            ConfigError: it breaks one.
        """
        if problems := self.check(subject):
            raise ConfigError(problems)


def _problem_of_row(row: Row, subject: object, item: tuple[object, ...]) -> Problem | None:
    if row.when is not None and not row.when(subject, *item):
        return None
    path = row.path.format(*item)
    value = row.value(subject, *item) if row.value else value_at(subject, path)
    if (problem := row.test(value, subject, *item)) is None:
        return None
    rule, remedy, *shown = problem
    return Problem(path, shown[0] if shown else value, f"{rule} ({row.source})", remedy, row.id)


@functools.cache
def _steps(path: str) -> tuple[str, ...]:
    return tuple(_STEP.findall(path))


def value_at(subject: object, path: str) -> Any:
    """Return the value at a key, with lists as YAML writes them; None if there is none.

    The first step may name the subject itself, where that is one section.
    """
    first, *steps = _steps(path)
    for step in [first, *steps] if hasattr(subject, first) else steps:
        if isinstance(subject, tuple):
            subject = subject[int(step)]
        else:
            subject = subject.get(step) if isinstance(subject, Mapping) else getattr(subject, step, None)
    return list(subject) if isinstance(subject, tuple) else subject


def be(wanted: object, why: str = "", remedy: str = "") -> Test:
    """Require the value to be `wanted`, or the result of that function of the subject."""

    def test(value: object, *args: Any) -> Broken:
        required_value = wanted(*args) if callable(wanted) else wanted
        if value == (list(required_value) if isinstance(required_value, tuple) else required_value):
            return None
        shown = as_override(required_value) or "''"
        return _with_reason(f"must be {shown}", why), remedy or f"set it to {shown}"

    return test


def _compare(
    holds: Callable[[int, int], bool], words: str, nearest: Callable[[int, int], object]
) -> Callable[..., Test]:
    """Return a factory of tests that compare a value with a number.

    These take the number, what it is called, why it is so, and the remedy, unless that is the nearest.
    """

    def compare(number: Number, label: str = "", why: str = "", remedy: str = "") -> Test:
        def test(value: int, *args: Any) -> Broken:
            count, name = _number(number, label, args)
            if holds(value, count):
                return None
            return _with_reason(f"must {words} {name}", why), remedy or f"use {nearest(value, count)}"

        return test

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
    lambda value, multiple: max(
        divisor for divisor in range(1, min(value, multiple) + 1) if multiple % divisor == 0
    ),
)


def hold(holds: Callable[..., bool], rule: str, remedy: str) -> Test:
    """Require a predicate of the subject to be true."""
    return lambda value, *args: None if holds(*args) else (rule, remedy)


def some(what: str, remedy: str) -> Test:
    """Require the list not to be empty."""
    return lambda value, *args: None if value else (f"must name at least one {what}", remedy)


def indices(path: str) -> Callable[[Any], Iterable[object]]:
    """Return, for `each`, the indices of the list at a key of the subject."""
    return lambda subject: range(len(value_at(subject, path)))


def once(path: str, remedy: str = "name it once") -> Test:
    """One of the list at `path` must not stand before itself."""
    return lambda value, subject, index: (
        ("is named twice", remedy) if value in value_at(subject, path)[:index] else None
    )


def required(because: str, remedy: str) -> Test:
    """Something must stand there."""
    return lambda value, *args: None if value is not None else (f"is required {because}", remedy)


def _number(number: Number, label: str, args: tuple[Any, ...]) -> tuple[int, str]:
    """Return a limit and its wording in messages."""
    count = value_at(args[0], number) if isinstance(number, str) else number
    count = count(*args) if callable(count) else count
    name = label or (number if isinstance(number, str) else "")
    if "{}" in name:
        return count, name.format(count)
    return count, f"{name}{' = ' if ' ' in name else '='}{count}" if name else str(count)


def _with_reason(rule: str, why: str) -> str:
    return f"{rule}: {why}" if why else rule
