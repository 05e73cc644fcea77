"""A configuration in a file: written to be read and typed again, with overrides over it."""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from pipeline.config.compose import VALUE
from pipeline.config.compose_cache import compose_cached
from pipeline.config.give_way import give_way
from pipeline.errors import ConfigError, Problem

FORM = "a YAML mapping as `grpoflow config --save FILE` writes it: sections, and defaults: [- GROUP: CHOICE]"


def text(overrides: Sequence[str], config_dir: Path | None) -> str:
    """The configuration of `overrides`: what was chosen from groups, then every value.

    What follows from other values stays null, so that it follows them again.
    """
    values, _ = give_way(compose_cached(overrides, config_dir), overrides)
    chosen = [
        override.lstrip("+").partition("=") for override in overrides if not VALUE.match(override.lstrip("+"))
    ]
    defaults = [{group: choice} for group, sign, choice in chosen if sign and not group.startswith("~")]
    return as_yaml({**({"defaults": defaults} if defaults else {}), **values})


def as_yaml(values: Mapping[str, Any]) -> str:
    """Plain values as YAML, in their order."""
    plain = json.loads(json.dumps(values))  # tuples are lists in YAML
    return str(yaml.safe_dump(plain, sort_keys=False, allow_unicode=True, width=110))


def read(file: Path, typed: Sequence[str], config_dir: Path | None) -> list[str]:
    """The overrides that make the configuration of a file, without those that `typed` decides.

    Raises:
        ConfigError: the file cannot be read, or is of another form.
    """
    try:
        values = yaml.safe_load(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        reason = " ".join(str(error).split())
        raise ConfigError(
            [Problem("--config", str(file), f"cannot be read: {reason}", f"give {FORM}")]
        ) from error
    defaults = values.pop("defaults", []) if isinstance(values, dict) else None
    if not isinstance(defaults, list) or not all(
        isinstance(entry, dict) and len(entry) == 1 for entry in defaults
    ):
        raise ConfigError([Problem("--config", str(file), "holds no configuration", f"give {FORM}")])
    chosen = [f"{group}={choice}" for entry in defaults for group, choice in entry.items()]
    base = compose_cached(chosen, config_dir)
    return below([*chosen, *_differences(base, values)], typed)


def below(overrides: Sequence[str], typed: Sequence[str]) -> list[str]:
    """`overrides` without what `typed` decides: the same keys, and those below a key or a group's choice."""
    keys = [override.lstrip("+~").partition("=")[0] for override in typed]
    return [
        override
        for override in overrides
        if not any(f"{override.lstrip('+~').partition('=')[0]}.".startswith(f"{key}.") for key in keys)
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
    """A value in Hydra's grammar."""
    if isinstance(value, dict):
        return "{" + ",".join(f"{key}:{word(one)}" for key, one in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(word, value)) + "]"
    if isinstance(value, str):
        ends = len(value) - len(value.rstrip("\\"))  # backslashes count before a quote only
        return "'" + value.replace("\\'", "\\\\'").replace("'", "\\'") + "\\" * ends + "'"
    return json.dumps(value)
