"""Configuration files for --config: writing, and reading as overrides that typed overrides replace."""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from pipeline.config.compose import VALUE, config_roots
from pipeline.config.compose_cache import compose_cached
from pipeline.config.document import load_document
from pipeline.config.load import derived_values
from pipeline.config.plain import flat
from pipeline.config.refused import LABELS
from pipeline.errors import ConfigError, Problem
from stages.report.text import neutral

FORM = "a YAML mapping as `grpoflow config` prints it: sections, and defaults: [- GROUP: CHOICE]"


def text(overrides: Sequence[str], values: Mapping[str, Any]) -> str:
    """Format a configuration as YAML that --config reads.

    Args:
        overrides: the overrides that it was composed from; its choices of groups become `defaults`.
        values: all sections, with derived values.
    """
    chosen = [
        override.lstrip("+").partition("=") for override in overrides if not VALUE.match(override.lstrip("+"))
    ]
    defaults = [{group: choice} for group, sign, choice in chosen if sign and not group.startswith("~")]
    return as_yaml({**({"defaults": defaults} if defaults else {}), **values})


def as_yaml(values: Mapping[str, Any]) -> str:
    """Format plain values as YAML in their order; control and direction characters are escaped."""
    plain = json.loads(json.dumps(values))  # tuples are lists in YAML
    text = str(yaml.safe_dump(plain, sort_keys=False, allow_unicode=True, width=110))
    return text if text == neutral(text) else str(yaml.safe_dump(plain, sort_keys=False, width=110))


def read(file: Path, typed: Sequence[str], config_dir: Path | None) -> list[str]:
    """Return the overrides that reproduce the configuration in a file.

    Derived values are left out, so that overrides may change the values that they follow from.

    Args:
        file: YAML file.
        typed: overrides of the command line; they replace values of the same keys and of keys below.
        config_dir: directory with the user's config groups.

    Raises:
        ConfigError: the file cannot be read or has another structure.
    """
    sections = {path.name for root in config_roots(config_dir) for path in root.glob("*/")}
    values = load_document(file, sections, f"give {FORM}")
    defaults = values.pop("defaults", []) if isinstance(values, dict) else None
    if not isinstance(defaults, list) or not all(
        isinstance(entry, dict) and len(entry) == 1 for entry in defaults
    ):
        raise ConfigError([Problem("--config", str(file), "holds no configuration", f"give {FORM}")])
    chosen = [f"{group}={choice}" for entry in defaults for group, choice in entry.items()]
    labels = _take_labels(values)
    overrides = [*chosen, *_explicit(chosen, values, config_dir)]
    if labels:
        actual = flat(derived_values(overrides, config_dir))
        overrides += [f"{key}={word(value)}" for key, value in labels.items() if value != actual.get(key)]
    return without(overrides, typed)


def _explicit(chosen: Sequence[str], values: Mapping[str, Any], config_dir: Path | None) -> list[str]:
    """Return the values that differ from the composition of `chosen`, except derived ones."""
    base = compose_cached(chosen, config_dir)
    changes = [*_differences(base, values)]
    leaves = flat(base)
    underived = [change for change in changes if leaves.get(_key(change), "") is not None]
    derived = flat(derived_values([*chosen, *underived], config_dir))
    return [
        change
        for change in changes
        if change in underived or change != f"{_key(change)}={word(derived.get(_key(change)))}"
    ]


def _take_labels(values: dict[str, Any]) -> dict[str, Any]:
    """Remove labels from a file's values and return those that are not null."""
    labels = {}
    for key in LABELS:
        group, _, name = key.partition(".")
        if isinstance(values.get(group), dict) and name in values[group]:
            labels[key] = values[group].pop(name)
    return {key: value for key, value in labels.items() if value is not None}


def _key(override: str) -> str:
    return override.lstrip("+~").partition("=")[0]


def without(overrides: Sequence[str], typed: Sequence[str]) -> list[str]:
    """Return `overrides` without those whose key, or a prefix of it, is also in `typed`."""
    keys = [_key(override) for override in typed]
    return [
        override
        for override in overrides
        if not any(f"{_key(override)}.".startswith(f"{key}.") for key in keys)
    ]


def _differences(base: Mapping[str, Any], values: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    for key, value in values.items():
        path = f"{prefix}{key}"
        if key not in base:
            yield f"++{path}={word(value)}"
        elif isinstance(value, dict) and isinstance(base[key], dict):
            yield from _differences(base[key], value, f"{path}.")
        elif value != base[key]:
            yield f"{path}={word(value)}"


def word(value: Any) -> str:
    """Return a value in Hydra's grammar; dates and other types of YAML become text."""
    if isinstance(value, dict):
        return "{" + ",".join(f"{key}:{word(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(word, value)) + "]"
    if isinstance(value, str):
        ends = len(value) - len(value.rstrip("\\"))  # backslashes need escaping before a quote only
        return "'" + value.replace("\\'", "\\\\'").replace("'", "\\'") + "\\" * ends + "'"
    return json.dumps(value) if isinstance(value, (bool, int, float, type(None))) else word(str(value))
