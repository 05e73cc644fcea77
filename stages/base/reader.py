"""Strict reading of plain mappings into frozen dataclasses.

Every section of the configuration is a frozen dataclass beside the code that it configures, with
no defaults: the values stand in conf/*.yaml and nowhere else. Bounds are written with
`annotated_types` (`Annotated[int, Ge(1)]`), choices with `Literal`, variants of a section as a union of
dataclasses that differ in `name: Literal[...]`.
"""

from __future__ import annotations

import collections.abc
import dataclasses
import difflib
import functools
import math
import types
import typing
from collections.abc import Mapping
from typing import Any, TypeVar

from annotated_types import Ge, Gt, Le, Lt

from stages.base.errors import ConfigError, Problem
from stages.base.identity import field_types

if typing.TYPE_CHECKING:
    from stages.sections import Sections

T = TypeVar("T")


def read(cls: type[T], values: Mapping[str, Any], path: str = "") -> T:
    """Build `cls` from `values`, checking every field.

    Args:
        cls: a frozen dataclass; nested dataclasses, `X | None`, `tuple[X, ...]`, `Literal` and
            `Mapping[str, X]`, unions by name and `Annotated` bounds are understood.
        values: plain data (dicts, lists, scalars), as resolved by Hydra or read from JSON.
        path: dotted prefix for messages, for example `layout.train`.

    Fields with a default may be absent; those of the configuration have none, their values stand in conf.

    Raises:
        ConfigError: with one Problem per unknown key, missing key, wrong type or broken bound.
    """
    problems: list[Problem] = []
    result = _dataclass(cls, values, path, problems)
    if problems:
        raise ConfigError(problems)
    return typing.cast(T, result)


def read_part(cls: type[T], config: Mapping[str, Any]) -> T:
    """Build `cls` from those sections of a configuration that its fields name.

    Raises:
        ConfigError: as `read`; KeyError where a section is not there at all.
    """
    return read(cls, {field.name: config[field.name] for field in dataclasses.fields(typing.cast(Any, cls))})


def part(cls: type[T], run: Sections) -> T:
    """Build an object from the sections of a run's configuration that its fields name."""
    return cls(
        **{field.name: getattr(run, field.name) for field in dataclasses.fields(typing.cast(Any, cls))}
    )


def as_text(value: Any) -> Any:
    """Return a variable's value as text; numbers are converted, but not true, which could mean 1."""
    return str(value) if type(value) in (int, float) else value


def _dataclass(cls: Any, values: Any, path: str, problems: list[Problem]) -> Any:
    if not isinstance(values, Mapping):
        problems.append(Problem(path or cls.__name__, values, "must be a group of keys"))
        return None
    hints = field_types(cls)
    names, defaults = _names(cls)
    before = len(problems)
    for key in values:
        if key not in names:
            near = difflib.get_close_matches(str(key), names, n=1)
            remedy = f"did you mean {_join(path, near[0])}?" if near else f"known: {', '.join(names)}"
            problems.append(Problem(_join(path, key), values[key], "unknown key", remedy))
    arguments = {}
    for name in names:
        if name in values:
            arguments[name] = _value(hints[name], values[name], _join(path, name), problems)
        elif name not in defaults:
            problems.append(
                Problem(_join(path, name), None, "is required", "set it in conf or as an override")
            )
    return cls(**arguments) if len(problems) == before else None


@functools.cache
def _names(cls: Any) -> tuple[list[str], frozenset[str]]:
    """Return the names of all fields, and of those with a default."""
    fields = dataclasses.fields(cls)
    return [f.name for f in fields], frozenset(f.name for f in fields if f.default is not dataclasses.MISSING)


@functools.cache
def _parts(hint: Any) -> tuple[Any, tuple[Any, ...]]:
    return typing.get_origin(hint), typing.get_args(hint)


def _value(hint: Any, value: Any, path: str, problems: list[Problem]) -> Any:
    origin, arguments = _parts(hint)
    if origin is typing.Annotated:
        inner, *bounds = arguments
        before = len(problems)
        result = _value(inner, value, path, problems)
        if len(problems) == before and result is not None:
            _check_bounds(bounds, result, path, problems)
        return result
    if origin in (types.UnionType, typing.Union):
        options = [option for option in arguments if option is not type(None)]
        if len(options) > 1:
            return _named(options, value, path, problems)
        return None if value is None else _value(options[0], value, path, problems)
    if origin is typing.Literal:
        if value not in arguments or isinstance(value, bool) != isinstance(arguments[0], bool):
            problems.append(Problem(path, value, f"must be one of {', '.join(map(str, arguments))}"))
        return value
    if origin is tuple:
        return _tuple(hint, value, path, problems)
    if origin is collections.abc.Mapping:
        return _mapping(hint, value, path, problems)
    if dataclasses.is_dataclass(hint):
        return _dataclass(hint, value, path, problems)
    return _scalar(hint, value, path, problems)


def _named(options: list[Any], value: Any, path: str, problems: list[Problem]) -> Any:
    """One of several dataclasses: the one whose `name: Literal[...]` holds the value's name."""
    names = {name: option for option in options for name in typing.get_args(field_types(option)["name"])}
    name = value.get("name") if isinstance(value, Mapping) else value
    if not isinstance(name, str) or name not in names:
        problems.append(Problem(_join(path, "name"), name, f"must be one of {', '.join(names)}"))
        return None
    return _dataclass(names[name], value, path, problems)


def _mapping(hint: Any, value: Any, path: str, problems: list[Problem]) -> Any:
    if not isinstance(value, Mapping):
        problems.append(Problem(path, value, "must be a group of keys"))
        return None
    inner = typing.get_args(hint)[1]
    return {str(key): _value(inner, item, _join(path, key), problems) for key, item in value.items()}


def _tuple(hint: Any, value: Any, path: str, problems: list[Problem]) -> Any:
    if not isinstance(value, (list, tuple)):
        problems.append(Problem(path, value, "must be a list"))
        return None
    inner = typing.get_args(hint)[0]
    return tuple(_value(inner, item, f"{path}[{i}]", problems) for i, item in enumerate(value))


def _scalar(hint: type, value: Any, path: str, problems: list[Problem]) -> Any:
    accepted = isinstance(value, hint) and not (isinstance(value, bool) and hint is not bool)
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if hint is float and isinstance(value, str):  # YAML 1.1 reads 1e-5 (no dot) as text
        try:
            value, accepted = float(value), True
        except ValueError:
            accepted = False
    if not accepted:
        names = {int: "a whole number", float: "a number", str: "text", bool: "true or false"}
        problems.append(Problem(path, value, f"must be {names.get(hint, hint.__name__)}"))
        return None
    if hint is float and not math.isfinite(value):
        problems.append(Problem(path, value, "must be finite"))
    return value


def _check_bounds(bounds: list[Any], value: Any, path: str, problems: list[Problem]) -> None:
    for bound in bounds:
        broken = (
            (isinstance(bound, Ge) and value < bound.ge and f"must be at least {bound.ge}")
            or (isinstance(bound, Gt) and value <= bound.gt and f"must be above {bound.gt}")
            or (isinstance(bound, Le) and value > bound.le and f"must be at most {bound.le}")
            or (isinstance(bound, Lt) and value >= bound.lt and f"must be below {bound.lt}")
        )
        if broken:
            problems.append(Problem(path, value, broken))


def _join(path: str, key: object) -> str:
    return f"{path}.{key}" if path else str(key)
