"""Strict reading of plain mappings into frozen dataclasses.

Every section of the configuration is a frozen dataclass next to the code that it configures. The defaults are
in conf/*.yaml only. Bounds are annotations (`Annotated[int, Ge(1)]`), choices are `Literal`, and variants of
a section are a union of dataclasses with different `name: Literal[...]`.
"""

from __future__ import annotations

import collections.abc
import contextlib
import dataclasses
import difflib
import math
import types
import typing
from collections.abc import Mapping
from typing import Any, TypeVar

from annotated_types import Ge, Gt, Le, Lt

from stages.base.errors import ConfigError, Problem
from stages.base.identity import by_name, field_types

T = TypeVar("T")
TYPE_NAMES = {int: "a whole number", float: "a number", str: "text", bool: "true or false"}


def read(cls: type[T], values: Mapping[str, Any], path: str = "") -> T:
    """Build `cls` from `values` and check every field; only fields with a default may be absent.

    Args:
        cls: a frozen dataclass with fields of scalar types, dataclasses, `X | None`, `tuple[X, ...]`,
            `Mapping[str, X]`, `Any`, `Literal`, unions by name or of a scalar with lists and mappings, and
            `Annotated` bounds.
        values: plain data (dicts, lists, scalars), as resolved by Hydra or read from JSON.
        path: dotted prefix for messages, for example `layout.train`.

    Raises:
        ConfigError: with one Problem per unknown key, missing key, wrong type or broken bound.
    """
    problems: list[Problem] = []
    result = _dataclass(cls, values, path, problems)
    if problems:
        raise ConfigError(problems)
    return typing.cast(T, result)


def read_part(cls: type[T], config: Mapping[str, Any]) -> T:
    """Build `cls` from the sections of a configuration that its fields name; KeyError if one is missing."""
    return read(cls, {name: config[name] for name in field_types(typing.cast(Any, cls))})


def part(cls: type[T], run: object) -> T:
    """Build `cls` from those attributes of `run` (stages.sections.Sections) that its fields name."""
    return cls(**{name: getattr(run, name) for name in field_types(typing.cast(Any, cls))})


def as_text(value: Any) -> Any:
    """Return a variable's value as text: YAML reads 1 as a number. true stays, which could mean 1."""
    return str(value) if type(value) in (int, float) else value


def _dataclass(cls: Any, values: Any, path: str, problems: list[Problem]) -> Any:
    if not isinstance(values, Mapping):
        problems.append(Problem(path or cls.__name__, values, "must be a group of keys"))
        return None
    hints, before = field_types(cls), len(problems)
    for key in values:
        if key not in hints:
            near = difflib.get_close_matches(str(key), hints, n=1)
            remedy = f"did you mean {_join(path, near[0])}?" if near else f"known: {', '.join(hints)}"
            problems.append(Problem(_join(path, key), values[key], "unknown key", remedy))
    arguments = {}
    for field in dataclasses.fields(cls):
        location = _join(path, field.name)
        if field.name in values:
            arguments[field.name] = _value(hints[field.name], values[field.name], location, problems)
        elif field.default is dataclasses.MISSING:
            problems.append(Problem(location, None, "is required", "set it in conf or as an override"))
    return cls(**arguments) if len(problems) == before else None


def _value(hint: Any, value: Any, path: str, problems: list[Problem]) -> Any:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Annotated:
        before = len(problems)
        result = _value(arguments[0], value, path, problems)
        if len(problems) == before and result is not None:
            _check_bounds(arguments[1:], result, path, problems)
        return result
    if origin in (types.UnionType, typing.Union):
        return _union(arguments, value, path, problems)
    if origin is typing.Literal:
        if value not in arguments or isinstance(value, bool) != isinstance(arguments[0], bool):
            problems.append(Problem(path, value, f"must be one of {', '.join(map(str, arguments))}"))
        return value
    if origin is tuple or origin is collections.abc.Mapping:
        return _items(origin, arguments, value, path, problems)
    if dataclasses.is_dataclass(hint):
        return _dataclass(hint, value, path, problems)
    if hint is Any:
        return _plain(value, path, problems)
    return _scalar(hint, value, path, problems)


def _union(arguments: tuple[Any, ...], value: Any, path: str, problems: list[Problem]) -> Any:
    options = [option for option in arguments if option is not type(None)]
    if len(options) > 1 and all(map(dataclasses.is_dataclass, options)):
        return _named(options, value, path, problems)
    if len(options) > 1:
        return _one_form(options, value, path, problems)
    return None if value is None else _value(options[0], value, path, problems)


def _named(options: list[Any], value: Any, path: str, problems: list[Problem]) -> Any:
    """Read one of several dataclasses: the one whose `name: Literal[...]` contains the value's name."""
    name = value.get("name") if isinstance(value, Mapping) else value
    names = by_name(tuple(options))
    if not isinstance(name, str) or name not in names:
        problems.append(Problem(_join(path, "name"), name, f"must be one of {', '.join(names)}"))
        return None
    return _dataclass(names[name], value, path, problems)


def _one_form(options: list[Any], value: Any, path: str, problems: list[Problem]) -> Any:
    """Read a value that may be a scalar, a list or a mapping: as the option of its form, or as the scalar."""
    form = tuple if isinstance(value, (list, tuple)) else collections.abc.Mapping
    for option in options:
        if isinstance(value, (list, tuple, Mapping)) and typing.get_origin(option) is form:
            return _value(option, value, path, problems)
    scalar = next(option for option in options if isinstance(option, type))
    if isinstance(value, scalar):
        return _value(scalar, value, path, problems)
    forms = {tuple: "a list", collections.abc.Mapping: "a group of keys"}
    others = [forms[origin] for option in options if (origin := typing.get_origin(option)) in forms]
    problems.append(Problem(path, value, f"must be {' or '.join((TYPE_NAMES[scalar], *others))}"))
    return None


def _items(origin: Any, arguments: tuple[Any, ...], value: Any, path: str, problems: list[Problem]) -> Any:
    """Read the items of a list or a mapping."""
    if origin is tuple and isinstance(value, (list, tuple)):
        return tuple(_value(arguments[0], item, f"{path}[{i}]", problems) for i, item in enumerate(value))
    if origin is not tuple and isinstance(value, Mapping):
        item_type, convert = arguments[1], as_text if arguments[1] is str else lambda each: each
        return {
            str(key): _value(item_type, convert(each), _join(path, key), problems)
            for key, each in value.items()
        }
    problems.append(Problem(path, value, "must be a list" if origin is tuple else "must be a group of keys"))
    return None


def _plain(value: Any, path: str, problems: list[Problem]) -> Any:
    """Read a value of any type: groups, lists and scalars."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item, _join(path, key), problems) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item, f"{path}[{i}]", problems) for i, item in enumerate(value)]
    if isinstance(value, float) and not math.isfinite(value):
        problems.append(Problem(path, value, "must be finite"))
    return value


def _scalar(hint: Any, value: Any, path: str, problems: list[Problem]) -> Any:
    if hint is float and isinstance(value, (int, str)) and not isinstance(value, bool):
        with contextlib.suppress(ValueError, OverflowError):
            value = float(value)  # YAML 1.1 reads 1e-5 (without a dot) as text
    if not isinstance(value, hint) or (isinstance(value, bool) and hint is not bool):
        problems.append(Problem(path, value, f"must be {TYPE_NAMES.get(hint, hint.__name__)}"))
        return None
    if hint is float and not math.isfinite(value):
        problems.append(Problem(path, value, "must be finite"))
    return value


def _check_bounds(bounds: tuple[Any, ...], value: Any, path: str, problems: list[Problem]) -> None:
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
