"""Types of values that come from interpolations, because an environment variable is always text."""

from __future__ import annotations

import collections.abc
import contextlib
import dataclasses
import re
import types
import typing
from collections.abc import Iterator
from typing import Any

from pipeline.config.sections import Config
from stages.base.identity import by_name, field_types


def convert_interpolated(config: Any) -> None:
    """Convert text that an interpolation gives to the type of its key: `seed=${oc.env:SEED}`.

    A whole number is written in digits, a number as Python reads it, a switch as true or false, and nothing
    as null. Other text stays, and reading the configuration reports it. Lists and groups need
    `${oc.decode:${oc.env:NAME}}`. Defaults that follow from a converted key are computed afterwards. If
    nothing is converted, values replace their interpolations, because computing them again takes as long.
    """
    unchanged, is_converted = [], False
    for node, key, accepted in _interpolated(config, [Config]):
        value = node[key]
        converted = _converted(value, accepted) if isinstance(value, str) else value
        if converted != value:
            node[key], is_converted = converted, True
        elif not (isinstance(value, str) and "${" in value):  # this text would be read as an interpolation
            unchanged.append((node, key, value))
    if not is_converted:
        for node, key, value in unchanged:
            node[key] = value


def _interpolated(node: Any, types_of_node: list[Any]) -> Iterator[tuple[Any, Any, list[Any]]]:
    """Yield the interpolations below a section or a list: where it is, its key and the types it may have."""
    from omegaconf import OmegaConf

    for key in range(len(node)) if OmegaConf.is_list(node) else list(node):
        accepted = _types_below(types_of_node, node, key)
        if OmegaConf.is_interpolation(node, key):
            yield node, key, accepted
        elif accepted and OmegaConf.is_config(node[key]):
            yield from _interpolated(node[key], accepted)


def _types_below(types_of_node: list[Any], node: Any, key: Any) -> list[Any]:
    """Return the types that a value below a section or a list may have; empty if the key is unknown."""
    sections: tuple[Any, ...] = tuple(filter(dataclasses.is_dataclass, types_of_node))
    if sections:
        section = sections[0] if len(sections) == 1 else by_name(sections).get(node.get("name"))
        return [] if section is None else _options(field_types(section).get(key))
    for option in types_of_node:
        if typing.get_origin(option) is tuple:
            return _options(typing.get_args(option)[0])
        if typing.get_origin(option) is collections.abc.Mapping:
            return _options(typing.get_args(option)[1])
    return []


def _options(hint: Any) -> list[Any]:
    """Return the types of a union, without markers and bounds."""
    if typing.get_origin(hint) is typing.Annotated:
        return _options(typing.get_args(hint)[0])
    if typing.get_origin(hint) in (types.UnionType, typing.Union):
        return [option for part in typing.get_args(hint) for option in _options(part)]
    return [] if hint is None else [hint]


def _converted(text: str, accepted: list[Any]) -> Any:
    """Return text as the first of the accepted types that it is written in."""
    if str in accepted or not accepted:
        return text
    if text == "null":
        return None
    for option in accepted:
        if typing.get_origin(option) is typing.Literal:
            return next((value for value in typing.get_args(option) if str(value) == text), text)
        if option is int and re.fullmatch(r"[+-]?[0-9]{1,18}", text):
            return int(text)
        if option is bool and text.lower() in ("true", "false"):
            return text.lower() == "true"
        if option is float:
            with contextlib.suppress(ValueError):
                return float(text)
    return text
