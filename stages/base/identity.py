"""What of a configuration is no part of an artifact's identity: said on the field, read in this one place."""

import dataclasses
import functools
import types
import typing
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class NotInIdentity:
    """Marks a field that changes nothing of what a stage makes.

    It says where something lies, how it comes here, who else is told, or when to give up. Of the user's files
    the content counts, by digest (Stage.external).
    """

    every_node: bool = False
    """True if it names something that each node of a run must have, at the same path."""


@dataclass(frozen=True)
class Checkout(NotInIdentity):
    """Marks a directory with an engine's sources."""

    every_node: bool = True


@dataclass(frozen=True)
class AbsentWhen:
    """Marks a field younger than stores in use: with this value their artifacts keep their identities."""

    value: Any


def identity(cls: Any, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the part of a configuration that enters fingerprints.

    Args:
        cls: its dataclass.
        values: plain data of some or all of its fields; keys that `cls` does not know count.
    """
    known = _fields(cls)
    counting = {}
    for key, value in values.items():
        markers, options = known.get(key, ((), ()))
        if any(_drops(marker, value) for marker in markers):
            continue
        inner = _dataclass(options, value) if options and isinstance(value, Mapping) else None
        counting[key] = value if inner is None else identity(inner, value)
    return counting


def on_every_node(section: Any) -> Iterator[str]:
    """Yield the paths in a section (a dataclass of the configuration) that every node of a run must have."""
    cls: Any = type(section)
    for key, hint in field_types(cls).items():
        if any(isinstance(marker, NotInIdentity) and marker.every_node for marker in _markers(hint)):
            value = getattr(section, key)
            yield from (value,) if isinstance(value, str) else value or ()


def marked(cls: Any, marker: type) -> Iterator[str]:
    """Yield the names of a dataclass's fields that have a marker."""
    for key, hint in field_types(cls).items():
        if any(isinstance(mark, marker) for mark in _markers(hint)):
            yield key


@functools.cache
def field_types(cls: Any) -> dict[str, Any]:
    """Types of a dataclass's fields, with their markers and bounds."""
    return typing.get_type_hints(cls, include_extras=True)


@functools.cache
def _fields(cls: Any) -> dict[str, tuple[tuple[Any, ...], tuple[Any, ...]]]:
    """Field -> its markers, and the dataclasses that its value may be made from."""
    return {key: (_markers(hint), _dataclasses(hint)) for key, hint in field_types(cls).items()}


def _markers(hint: Any) -> tuple[Any, ...]:
    return hint.__metadata__ if typing.get_origin(hint) is typing.Annotated else ()


def _dataclasses(hint: Any) -> tuple[Any, ...]:
    if typing.get_origin(hint) is typing.Annotated:
        hint = typing.get_args(hint)[0]
    union = typing.get_origin(hint) in (types.UnionType, typing.Union)
    return tuple(filter(dataclasses.is_dataclass, typing.get_args(hint) if union else (hint,)))


def _drops(marker: Any, value: Any) -> bool:
    if isinstance(marker, AbsentWhen):
        return bool(value == marker.value)
    return isinstance(marker, NotInIdentity)


def _dataclass(options: tuple[Any, ...], value: Mapping[str, Any]) -> Any:
    """Return the dataclass that plain `value` was made from: the option with its name."""
    if len(options) > 1:
        named = (
            option for option in options if value.get("name") in typing.get_args(field_types(option)["name"])
        )
        return next(named, None)
    return options[0]
