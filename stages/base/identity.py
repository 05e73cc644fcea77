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
class CheckoutDirectory(NotInIdentity):
    """Marker of a directory with an engine's sources."""

    every_node: bool = True


def identity(cls: Any, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the part of a dataclass's plain values that enters fingerprints; unknown keys are included."""
    known = _fields(cls)
    included = {}
    for key, value in values.items():
        markers, options = known.get(key, ((), ()))
        if any(isinstance(marker, NotInIdentity) for marker in markers):
            continue
        inner = None
        if options and isinstance(value, Mapping):
            inner = options[0] if len(options) == 1 else by_name(options).get(value.get("name"))
        included[key] = value if inner is None else identity(inner, value)
    return included


def on_every_node(section: Any) -> Iterator[str]:
    """Yield the paths in a typed section that must exist on every node of a run."""
    cls: Any = type(section)
    for key, (markers, _) in _fields(cls).items():
        if any(isinstance(marker, NotInIdentity) and marker.every_node for marker in markers):
            value = getattr(section, key)
            yield from (value,) if isinstance(value, str) else value or ()


def marked(cls: Any, marker: type) -> Iterator[str]:
    """Return the names of a dataclass's fields that have a marker."""
    return (key for key, (markers, _) in _fields(cls).items() if any(isinstance(m, marker) for m in markers))


@functools.cache
def field_types(cls: Any) -> dict[str, Any]:
    """Return the types of a dataclass's fields, with their markers and bounds."""
    return typing.get_type_hints(cls, include_extras=True)


@functools.cache
def by_name(options: tuple[Any, ...]) -> dict[Any, Any]:
    """Return name -> dataclass for several dataclasses with different `name: Literal[...]`."""
    return {name: option for option in options for name in typing.get_args(field_types(option)["name"])}


@functools.cache
def _fields(cls: Any) -> dict[str, tuple[tuple[Any, ...], tuple[Any, ...]]]:
    """Return the markers of each field, and the dataclasses that its value may have."""
    fields: dict[str, tuple[tuple[Any, ...], tuple[Any, ...]]] = {}
    for key, hint in field_types(cls).items():
        markers = getattr(hint, "__metadata__", ())
        hint = typing.get_args(hint)[0] if markers else hint
        is_union = typing.get_origin(hint) in (types.UnionType, typing.Union)
        options = typing.get_args(hint) if is_union else (hint,)
        fields[key] = markers, tuple(filter(dataclasses.is_dataclass, options))
    return fields
