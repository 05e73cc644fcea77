"""Markers of configuration fields that are not part of fingerprints, and the function that reads them."""

import dataclasses
import functools
import types
import typing
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class NotInIdentity:
    """Marker of a field that does not affect any stage's output: a path, a way of download, or a time limit.

    The content of user files is fingerprinted by digest (Stage.external).
    """

    every_node: bool = False
    """True if it is a path that must exist on each node of a run."""


@dataclass(frozen=True)
class Checkout(NotInIdentity):
    """Marker of a directory with an engine's sources."""

    every_node: bool = True


@dataclass(frozen=True)
class AbsentWhen:
    """Marker of a field that older stores do not have: with this value, fingerprints stay the same."""

    value: Any


def identity(cls: Any, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the part of a configuration that enters fingerprints.

    Args:
        cls: the configuration's dataclass.
        values: plain data of some or all of its fields; keys without a field are included.
    """
    known = _fields(cls)
    included = {}
    for key, value in values.items():
        markers, options = known.get(key, ((), ()))
        if any(_drops(marker, value) for marker in markers):
            continue
        inner = _dataclass(options, value) if options and isinstance(value, Mapping) else None
        included[key] = value if inner is None else identity(inner, value)
    return included


def on_every_node(section: Any) -> Iterator[str]:
    """Yield the paths in a typed section that must exist on every node of a run."""
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
    """Return the types of a dataclass's fields, with their markers and bounds."""
    return typing.get_type_hints(cls, include_extras=True)


@functools.cache
def _fields(cls: Any) -> dict[str, tuple[tuple[Any, ...], tuple[Any, ...]]]:
    """Return the markers of each field, and the dataclasses that its value may have."""
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
