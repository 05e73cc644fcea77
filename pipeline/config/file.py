"""Configuration files for --config: writing, and reading as overrides that typed overrides replace."""

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from pipeline.config.compose import LABELS, PRESET, VALUE, compose
from pipeline.config.directory import IMPLYING, complete
from pipeline.config.grammar import key_of, word
from pipeline.config.load import unchecked
from pipeline.errors import ConfigError, Problem
from stages.base.keys import flat
from stages.report.text import neutral

MAX_DEPTH = 50
"""Levels of nesting; Python's own limit depends on the process, and Hydra fails with deep keys below it."""
FORM = "give a YAML mapping as `grpoflow config` prints it: sections, and defaults: [- GROUP: CHOICE]"


class _Loader(yaml.SafeLoader):  # type: ignore[misc]
    """YAML loader that refuses duplicate keys, deep nesting, and aliases, which can expand to any size."""

    depth = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        """Return the next node of the document."""
        mark = self.peek_event().start_mark
        if self.check_event(yaml.AliasEvent):
            raise yaml.MarkedYAMLError(problem="an alias stands for a value", problem_mark=mark)
        if self.depth == MAX_DEPTH:
            raise yaml.MarkedYAMLError(problem=f"is nested more than {MAX_DEPTH} levels", problem_mark=mark)
        self.depth += 1
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node

    def construct_mapping(self, node: Any, deep: bool = False) -> Any:
        """Return a mapping's values."""
        names = [key.value for key, _ in node.value]
        for number, (key, _) in enumerate(node.value):
            if key.value in names[:number]:
                raise yaml.MarkedYAMLError(problem=f"{key.value} is given twice", problem_mark=key.start_mark)
        return super().construct_mapping(node, deep)


def text(overrides: Sequence[str], values: Mapping[str, Any]) -> str:
    """Format a configuration as YAML that --config reads; control and direction characters are escaped.

    The choices of groups among its `overrides` become `defaults`.
    """
    chosen = [
        override.lstrip("+").partition("=") for override in overrides if not VALUE.match(override.lstrip("+"))
    ]
    defaults = [{group: choice} for group, sign, choice in chosen if sign and not group.startswith("~")]
    complete = {**({"defaults": defaults} if defaults else {}), **values}
    plain = _literal(json.loads(json.dumps(complete)))  # tuples are lists in YAML
    text = str(yaml.safe_dump(plain, sort_keys=False, allow_unicode=True, width=110))
    return text if text == neutral(text) else str(yaml.safe_dump(plain, sort_keys=False, width=110))


def _literal(values: Any) -> Any:
    """Return plain values in which no text is an interpolation, because they are resolved."""
    if isinstance(values, dict):
        return {key: _literal(value) for key, value in values.items()}
    if isinstance(values, list):
        return [_literal(value) for value in values]
    if isinstance(values, str):  # OmegaConf halves the backslashes before ${
        return re.sub(r"(\\*)\$\{", lambda match: f"{match[1] * 2}\\${{", values)
    return values


def read(file: Path, typed: Sequence[str], config_dir: Path | None) -> list[str]:
    """Return the overrides that reproduce the configuration in a file.

    Derived values are left out, so that overrides may change the values that they follow from. The overrides
    `typed` on the command line replace values of the same keys and of keys below.

    Raises:
        ConfigError: the file cannot be read or has another structure.
    """
    values = _load(file)
    choices = values.pop("defaults", []) if isinstance(values, dict) and values else None
    if not isinstance(choices, list) or not all(
        isinstance(entry, dict) and len(entry) == 1 for entry in choices
    ):
        raise ConfigError([Problem("--config", str(file), "holds no configuration", FORM)])
    overrides = [f"{group}={choice}" for entry in choices for group, choice in entry.items()]
    train = values.get("train")
    if isinstance(train, dict) and isinstance(
        train.get("preset"), str
    ):  # before what differs from its values
        overrides.append(f"{PRESET}={word(train['preset'])}")
    # typed because $GRPOFLOW_REMOTE may be invalid
    addresses = [override for override in typed if key_of(override) in ("remote", "remote.url")]
    composed = compose([*overrides, *addresses], config_dir)
    for name, section in values.items():
        if isinstance(composed.get(name), dict) and not isinstance(section, dict):
            raise ConfigError([Problem(f"{file}: {name}", section, "must hold the section's keys", FORM)])
    paths = _paths(values, composed)
    try:
        composed = complete(compose([*overrides, *paths], config_dir), [*overrides, *paths])
    except ConfigError:  # the file's model is gone; one on the command line replaces it
        paths = [override for override in typed if key_of(override) in map(key_of, paths)]
        composed = complete(compose([*overrides, *paths], config_dir), [*overrides, *paths])
    overrides += paths
    defaults, derived = flat(composed), {}
    for key, value in flat(values).items():
        if key in (PRESET, *map(key_of, paths)):
            continue
        if key in LABELS or defaults.get(key, "") is None:
            derived[key] = value
        elif key not in defaults or value != defaults[key]:
            overrides.append(f"{'' if key in defaults else '++'}{key}={word(value)}")
    actual = _complete(overrides, config_dir) if derived else {}
    overrides += [f"{key}={word(value)}" for key, value in derived.items() if value != actual.get(key)]
    keys = [key_of(override) for override in typed]
    return [
        override
        for override in overrides
        if not any(f"{key_of(override)}.".startswith(f"{key}.") for key in keys)
    ]


def _paths(values: Mapping[str, Any], composed: Mapping[str, Any]) -> list[str]:
    """Return overrides of the paths in a file from which further values of their sections follow."""
    return [
        f"{section}.{name}={word(value)}"
        for section, names in IMPLYING.items()
        for name in names
        if (value := values.get(section, {}).get(name)) is not None and value != composed[section].get(name)
    ]


def _complete(overrides: Sequence[str], config_dir: Path | None) -> dict[str, Any]:
    """Return the complete configuration by dotted keys; empty if a value has the wrong type.

    That is reported when the overrides are read, unless those on the command line replace the value.
    """
    try:
        plain: dict[str, Any] = json.loads(json.dumps(unchecked(overrides, config_dir).plain()))
    except ConfigError:
        return {}
    return flat(plain)


def _load(file: Path) -> Any:
    try:
        with file.open("rb") as stream:
            return yaml.load(stream, _Loader)  # noqa: S506 - a subclass of SafeLoader
    except yaml.MarkedYAMLError as error:
        line = f":{error.problem_mark.line + 1}" if error.problem_mark else ""
        raise ConfigError([Problem(f"{file}{line}", None, str(error.problem), FORM)]) from error
    except (OSError, ValueError, yaml.YAMLError) as error:
        reason = " ".join(str(error).split())
        raise ConfigError([Problem("--config", str(file), f"cannot be read: {reason}", FORM)]) from error
