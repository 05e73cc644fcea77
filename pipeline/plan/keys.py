"""Descriptions of configuration keys, derived from their fields, the graph and the rules."""

import ast
import dataclasses
import functools
import inspect
import re
import textwrap
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from annotated_types import Ge, Gt, Le, Lt

from pipeline.config import suggestions
from pipeline.config.compose import PRESET, config_files, in_presets
from pipeline.config.sections import Config
from pipeline.errors import ConfigError, Problem
from pipeline.plan.graph import downstream, stages
from pipeline.plan.rule_texts import rules_about
from stages import engines
from stages.base.errors import as_override
from stages.base.identity import NotInIdentity, field_types
from stages.base.keys import flat

SHOWN_BY_NAME = ("defaults", "preset")
"""Keys of a preset's file that are not among its values."""
UNITS = {"_s": "seconds", "_gib": "GiB", "_kb": "KiB", "_mib": "MiB", "_bytes": "bytes", "_tokens": "tokens"}
"""Suffix of a key's name -> unit."""
BOUNDS = {Ge: ("at least", "ge"), Gt: ("above", "gt"), Le: ("at most", "le"), Lt: ("below", "lt")}
TYPE_NAMES = {
    int: "whole number",
    float: "number",
    str: "text",
    bool: "true or false",
    type(None): "null",
} | {Any: "any value"}


@dataclass(frozen=True)
class KeyDescription:
    """Description of one configuration key or section."""

    path: str
    meaning: str
    type: str
    """Type with choices and bounds."""
    unit: str | None
    value: Any
    fields: dict[str, str]
    """For a section: field name -> first sentence of its description."""
    choices: dict[str, str]
    """For a key that chooses a file with values of its section: the file's name -> its comment and values."""
    read_by: tuple[str, ...]
    """Stages of this configuration's graph that read the key."""
    reruns: tuple[str, ...]
    """Stages that a change reruns: those that read the key, and everything downstream."""
    rules: tuple[str, ...]
    """Rules that check the key, besides its type, each with its source."""


def explain(path: str, config: Config, config_dir: Path | None = None) -> KeyDescription:
    """Describe a key; raise ConfigError if it does not exist.

    `config_dir`: directory with further choices of groups.
    """
    owner, hint, value, markers = _walk(path, config)
    section, name = path.partition(".")[0], path.rpartition(".")[2]
    fingerprinted = not any(isinstance(marker, NotInIdentity) for marker in markers)
    graph = [stage for stage in stages(config) if stage.skipped is None]
    read_by = [
        stage.name for stage in graph if section in stage.sections and (section, name) not in stage.unread
    ]
    rerun = downstream(read_by, graph) if fingerprinted else frozenset()
    inner = _dataclass(hint, value)
    meaning = _docs(owner).get(name) or (inspect.cleandoc(inner.__doc__ or "") if inner else "")
    units = (unit for end, unit in UNITS.items() if path.endswith(end))
    fields = {}
    for key in field_types(inner) if inner else ():
        first_sentence = re.split(r"(?<=[.;])\s", " ".join(_docs(inner).get(key, "").split()))[0]
        fields[key] = first_sentence.rstrip(";")
    return KeyDescription(
        path,
        " ".join(meaning.split()),
        "section" if inner else type_text(hint),
        next(units, None),
        None if inner else value,
        fields,
        _presets(config_dir) if path == PRESET else {},
        tuple(read_by),
        tuple(stage.name for stage in graph if stage.name in rerun),
        rules_about(path, config),
    )


def _presets(config_dir: Path | None) -> dict[str, str]:
    """Return the presets' names -> their comments and values."""
    texts = {}
    for file in (file for name, file in config_files(config_dir).items() if in_presets(name)):
        content = file.read_text(encoding="utf-8")
        comments = [line.lstrip("# ") for line in content.splitlines() if line.startswith("# ")]
        comment = " ".join(line for line in comments if not line.startswith("@package"))
        values = {key: value for key, value in yaml.safe_load(content).items() if key not in SHOWN_BY_NAME}
        texts[file.stem] = f"{comment} {' '.join(f'{key}={as_override(values[key])}' for key in values)}"
    return texts


def engines_with(path: str) -> tuple[str, ...]:
    """Return the engines that have a key of the section `engine`; empty if all have it, or none."""
    section, _, name = path.partition(".")
    owners = suggestions.engines_with(name.partition(".")[0]) if section == "engine" else ()
    return owners if len(owners) < len(engines.NAMES) else ()


def type_text(hint: Any) -> str:
    """Return a type in words, with its choices and bounds."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Annotated:
        bounds = [
            f"{words} {getattr(marker, attribute)}"
            for marker in hint.__metadata__
            for kind, (words, attribute) in BOUNDS.items()
            if isinstance(marker, kind)
        ]
        return ", ".join([type_text(arguments[0]), *bounds])
    if origin in (types.UnionType, typing.Union):
        return " or ".join(map(type_text, arguments))
    if origin is typing.Literal:
        return "one of " + ", ".join(map(str, arguments))
    if origin is tuple:
        return f"list of {type_text(arguments[0])}"
    if origin is not None:
        return f"mapping of names to {type_text(arguments[-1])}"
    return TYPE_NAMES.get(hint, "section")


def _walk(path: str, config: Config) -> tuple[Any, Any, Any, list[Any]]:
    """Return the dataclass that contains a key, the key's type and value, and all markers on its path."""
    owner: Any = Config
    value: Any = config
    hint: Any = Config
    markers: list[Any] = []
    for step in path.split("."):
        inner = _dataclass(hint, value)
        if inner is None or step not in field_types(inner):
            known = [*flat(config.plain()), *field_types(Config)]
            raise ConfigError([Problem("--explain", path, "unknown key", suggestions.for_key(path, known))])
        owner, hint = inner, field_types(inner)[step]
        value = None if value is None else getattr(value, step)
        if typing.get_origin(hint) is typing.Annotated:
            markers += hint.__metadata__
    return owner, hint, value, markers


def _dataclass(hint: Any, value: Any) -> Any:
    """Return the dataclass of a section; of a union, the one that `value` is an instance of."""
    if dataclasses.is_dataclass(value):
        return type(value)
    options = (hint, *typing.get_args(hint))
    return next(
        (option for option in options if isinstance(option, type) and dataclasses.is_dataclass(option)), None
    )


@functools.cache
def _docs(cls: Any) -> Mapping[str, str]:
    """Return the docstrings of a dataclass's fields, inherited ones included, by field name."""
    texts: dict[str, str] = {}
    for base in reversed(cls.__mro__[:-1]):
        body = ast.parse(textwrap.dedent(inspect.getsource(base))).body[0]
        assert isinstance(body, ast.ClassDef)
        for field, text in zip(body.body, body.body[1:], strict=False):
            if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
                expression = text.value if isinstance(text, ast.Expr) else None
                docstring = expression.value if isinstance(expression, ast.Constant) else None
                texts[field.target.id] = inspect.cleandoc(docstring) if isinstance(docstring, str) else ""
    return texts
