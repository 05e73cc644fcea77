"""Conditions that many rules share, as functions that yield a problem if a value breaks them.

A rule is a few lines of a function that yields problems:

    yield from equal("train.lora_rank", train.lora_rank, 0, "it trains all weights", "utils/configs.py")
    if train.schedule == "linear":
        yield Problem("train.schedule", train.schedule, "must not be linear", "use cosine", source="lr.py")

`why` completes the rule after a colon, `source` is the file or paper that the rule follows from; "ours: FILE"
names a file of grpoflow. Without `remedy` the remedy is the nearest valid value.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeVar

from stages.base.errors import ConfigError, Problem, as_override

T = TypeVar("T")


def equal(path: str, value: T, required: T, why: str, source: str, remedy: str = "") -> Iterator[Problem]:
    """Yield a problem unless the value equals `required`."""
    if value != required:
        shown = as_override(required) or "''"
        yield Problem(
            path, _shown(value), _rule(f"must be {shown}", why), remedy or f"set it to {shown}", source
        )


def at_least(
    path: str, value: int, least: int, name: str, why: str, source: str, remedy: str = ""
) -> Iterator[Problem]:
    """Yield a problem if the value is below `least`; `name` is what the limit is called, or empty."""
    if value < least:
        rule = _rule(f"must be at least {_named(name, least)}", why)
        yield Problem(path, value, rule, remedy or f"use {least}", source)


def at_most(
    path: str, value: int, most: int, name: str, why: str, source: str, remedy: str = ""
) -> Iterator[Problem]:
    """Yield a problem if the value is above `most`; `name` is what the limit is called, or empty."""
    if value > most:
        rule = _rule(f"must be at most {_named(name, most)}", why)
        yield Problem(path, value, rule, remedy or f"use at most {most}", source)


def multiple_of(
    path: str, value: int, parts: int, name: str, why: str, source: str, remedy: str = ""
) -> Iterator[Problem]:
    """Yield a problem unless the value is a multiple of `parts`, which is called `name`."""
    if value % parts != 0:
        rule = _rule(f"must be a multiple of {_named(name, parts)}", why)
        yield Problem(path, value, rule, remedy or f"use {-(-value // parts) * parts}", source)


def divides(
    path: str, value: int, whole: int, name: str, why: str, source: str, remedy: str = ""
) -> Iterator[Problem]:
    """Yield a problem unless the value divides `whole`, which is called `name`."""
    if whole % value != 0:
        rule = _rule(f"must divide {_named(name, whole)}", why)
        nearest = next(part for part in range(min(value, whole), 0, -1) if whole % part == 0)
        yield Problem(path, value, rule, remedy or f"use {nearest}", source)


def demand(problems: Iterable[Problem]) -> None:
    """Raise ConfigError if there is a problem."""
    if found := list(problems):
        raise ConfigError(found)


def _named(name: str, number: int) -> str:
    """Return a limit as it is shown: `name=number`, or the name with the number in the place of {}."""
    if "{}" in name:
        return name.format(number)
    return f"{name}{' = ' if ' ' in name else '='}{number}" if name else str(number)


def _rule(rule: str, why: str) -> str:
    return f"{rule}: {why}" if why else rule


def _shown(value: object) -> object:
    """Return a value as a user writes it: lists have brackets."""
    return list(value) if isinstance(value, tuple) else value
