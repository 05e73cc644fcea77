"""Composition of overrides into a resolved plain configuration by Hydra.

Layout names need no file: hydra_plugins/grpoflow/layout_names.py provides them.
"""

from __future__ import annotations

import copy
import difflib
import functools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipeline.config import remote
from pipeline.config.kept import Kept
from pipeline.errors import ConfigError, Problem
from pipeline.fingerprint import file_state
from stages.base.redact import redact

VALUE = re.compile(
    r"(seed|store|cards|[A-Za-z_]\w*(\.\w+)+)="
)  # a key with a dot, or one that is not a group
ENVIRONMENT = re.compile(r"\$\{\s*oc\.env\s*:\s*([A-Za-z_]\w*)\s*(?:,\s*[\w./-]*\s*)?\}")
"""Reference to an environment variable with a literal name and default, which refers to no key."""


def compose(overrides: Sequence[str], config_dir: Path | None = None) -> dict[str, Any]:
    """Compose conf/config.yaml with `overrides`.

    Args:
        overrides: Hydra's grammar: `train.beta=0.02`, `model=qwen2_5_7b`, `+a=1`, `~b`.
        config_dir: directory with the user's config groups, which add choices to the built-in ones.

    Returns:
        The resolved configuration as plain dicts, lists and scalars.

    Raises:
        ConfigError: an override is malformed, or names a choice or a key that does not exist.
    """
    return Composer(config_dir).compose(overrides)


class Composer:
    """`compose` for many override lists at one time: files and environment are read once.

    Its results have parts in common, which nobody may change; `kept` holds what is made of them.
    A point of a sweep costs no more than setting its values where these are scalars that nothing in the
    configuration refers to; all else is Hydra's and OmegaConf's.
    """

    def __init__(self, config_dir: Path | None = None) -> None:
        self._config_dir, self._state = config_dir, _state(config_dir)
        self._resolved: dict[tuple[str, ...], Resolved | None] = {}
        self.kept = Kept()

    def compose(self, overrides: Sequence[str]) -> dict[str, Any]:
        """Same as the function compose, but configuration files are read once."""
        overrides = [remote.as_override(override) for override in overrides]
        from pipeline.config import refused  # here and below: importing Hydra takes as long as a no-op run

        if broken := list(refused.problems(overrides, config_roots(self._config_dir))):
            raise ConfigError(broken)
        values = self._compose(overrides)
        if broken := list(remote.problems(values.get("remote"))):
            raise ConfigError(broken)  # here: a secret must not reach the cache of composed configurations
        return values

    def _compose(self, overrides: Sequence[str]) -> dict[str, Any]:
        from hydra.errors import HydraException
        from omegaconf import OmegaConf
        from omegaconf.errors import OmegaConfBaseException

        structural = tuple(override for override in overrides if not VALUE.match(override))
        values = [override for override in overrides if VALUE.match(override)]
        try:
            config = _choices(structural, self._config_dir, self._state)
            if structural not in self._resolved:
                self._resolved[structural] = Resolved.of(config)
            resolved = self._resolved[structural]
            quick = None if resolved is None else resolved.changed(values)
            if quick is not None:
                return quick
            config = copy.deepcopy(config)
            _set_values(config, values)
            container: Any = OmegaConf.to_container(config, resolve=True)
            return dict(container)
        except (HydraException, OmegaConfBaseException, ValueError) as error:
            raise ConfigError([_explain(str(error), overrides, self._config_dir)]) from error


@dataclass(frozen=True)
class Resolved:
    """A composition with every reference resolved."""

    values: dict[str, Any]
    named: frozenset[str]
    """What references name: keys among other words."""

    @classmethod
    def of(cls, config: Any) -> Resolved | None:
        """Resolve `config`, an OmegaConf container; None: it cannot be before values are set."""
        from omegaconf import OmegaConf
        from omegaconf.errors import OmegaConfBaseException

        raw: Any = OmegaConf.to_container(config, resolve=False)
        texts = [ENVIRONMENT.sub("", leaf) for leaf in _leaves(raw) if isinstance(leaf, str) and "${" in leaf]
        if any(re.search(r"\$\{\s*\.", text) for text in texts):  # relative to where it stands
            return None
        try:
            values: Any = OmegaConf.to_container(config, resolve=True)
        except OmegaConfBaseException:
            return None
        return cls(values, frozenset(word for text in texts for word in re.findall(r"[\w.]+", text)))

    def changed(self, overrides: Sequence[str]) -> dict[str, Any] | None:
        """The values with some set; None: that takes OmegaConf."""
        changed = dict(self.values)
        for override in overrides:
            simple = _scalar(override)
            if simple is None or any(_touch(simple[0], word) for word in self.named):
                return None
            *parents, name = simple[0].split(".")
            section = changed
            for parent in parents:
                if not isinstance(section.get(parent), dict):
                    return None
                section[parent] = section = dict(section[parent])
            if name not in section or isinstance(section[name], (dict, list)):
                return None
            section[name] = simple[1]
        return changed


def _touch(first: str, second: str) -> bool:
    """Return True if two dotted keys are equal or one contains the other."""
    return f"{first}.".startswith(f"{second}.") or f"{second}.".startswith(f"{first}.")


def _leaves(values: Any) -> Iterator[Any]:
    """Yield the leaves of nested mappings and lists."""
    if isinstance(values, (dict, list)):
        for value in values.values() if isinstance(values, dict) else values:
            yield from _leaves(value)
    else:
        yield values


@functools.lru_cache(maxsize=1 << 16)
def _scalar(override: str) -> tuple[str, Any] | None:
    """Return key and value of an override that sets a scalar without references; None for any other.

    Raises:
        HydraException: the override is malformed.
    """
    from hydra.core.override_parser.overrides_parser import OverridesParser

    parsed = OverridesParser.create().parse_override(override)
    value = None if parsed.is_sweep_override() else parsed.value()
    scalar = isinstance(value, (bool, int, float, str, type(None)))
    if parsed.is_sweep_override() or not scalar or (isinstance(value, str) and "${" in value):
        return None
    return parsed.key_or_group, value


@functools.lru_cache(maxsize=64)
def _choices(overrides: tuple[str, ...], config_dir: Path | None, state: object) -> Any:
    """Compose with Hydra the choices of groups, additions and deletions; the result is not resolved.

    Values are set afterwards, as in Hydra itself. Points of a sweep with the same choices share the result,
    because composing takes 100 ms and setting values 10 ms. A changed `state` invalidates cached results.
    """
    import hydra
    from hydra.core.global_hydra import GlobalHydra

    arguments = list(overrides)
    if config_dir is not None:
        if not config_dir.is_dir():
            raise ConfigError([Problem("--config-dir", config_dir, "must be a directory")])
        arguments.append(f"hydra.searchpath=[file://{config_dir.resolve()},grpoflow://layouts]")
    GlobalHydra.instance().clear()  # Hydra refuses a second composition inside @hydra.main otherwise
    with hydra.initialize_config_module("conf", version_base="1.3"):
        return hydra.compose("config", overrides=arguments)


def _state(config_dir: Path | None) -> object:
    """Return names, sizes and modification times of all config files."""
    return tuple((name, *file_state(file.stat())) for name, file in config_files(config_dir).items())


def config_files(config_dir: Path | None) -> dict[str, Path]:
    """Return the files that composition may read, by number of the root and relative path; follows links."""
    roots = config_roots(config_dir)
    return {
        f"{number}/{file.relative_to(root)}": file
        for number, root in enumerate(roots)
        for file in _below(root, frozenset())
    }


def config_roots(config_dir: Path | None) -> list[Path]:
    """Return the directories of config groups."""
    return [Path(__file__).parents[2] / "conf", *([config_dir] if config_dir else [])]


def _below(directory: Path, above: frozenset[Path]) -> Iterator[Path]:
    """Yield the YAML files below a directory in a fixed order; does not follow links to its parents."""
    resolved = directory.resolve()
    if resolved in above:
        return
    try:
        paths = sorted(directory.iterdir())
    except OSError:  # Hydra reports what it cannot find
        return
    for path in paths:
        if path.is_dir():
            yield from _below(path, above | {resolved})
        elif path.suffix in (".yaml", ".yml") and path.is_file():
            yield path


def _set_values(config: Any, overrides: Sequence[str]) -> None:
    """Set values in a composed configuration as Hydra 1.3.8 does (config_loader_impl.py)."""
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.errors import ConfigCompositionException
    from omegaconf import OmegaConf
    from omegaconf.errors import ConfigAttributeError, ConfigKeyError

    for override in OverridesParser.create().parse_overrides(list(overrides)):
        if override.is_sweep_override():
            raise ConfigCompositionException(f"{override.input_line}: one value, not a sweep, is needed here")
        try:
            OmegaConf.update(config, override.key_or_group, override.value(), merge=True)
        except (ConfigAttributeError, ConfigKeyError) as error:
            raise ConfigCompositionException(f"Could not override '{override.key_or_group}'.") from error


def _explain(message: str, overrides: Sequence[str], config_dir: Path | None) -> Problem:
    """Return Hydra's message of several lines as a Problem."""
    unknown = re.search(r"Could not override '([^']+)'", message)
    if unknown and overrides:
        key = unknown.group(1)
        value = next((o.partition("=")[2] for o in overrides if o.lstrip("+~").startswith(f"{key}=")), None)
        choices = [override for override in overrides if re.fullmatch(r"\w+=[\w-]+", override)]
        choices = [
            choice for choice in choices if not VALUE.match(choice) and choice.partition("=")[0] != key
        ]
        near = difflib.get_close_matches(key, _keys(compose(choices, config_dir)), n=1, cutoff=0.5)
        return Problem(
            key, value, "unknown key", f"did you mean {near[0]}?" if near else "see `grpoflow plan --help`"
        )
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    choice = re.search(r"Could not find '([^'/]+)/([^']+)'", message) or re.search(
        r"Could not load '([^'/]+)/([^']+)'", message
    )
    if choice:
        options = [line for line in lines[1:] if re.fullmatch(r"[\w.-]+", line)]
        return Problem(choice.group(1), choice.group(2), "no such choice", f"known: {', '.join(options)}")
    return Problem(
        "overrides",
        redact(" ".join(overrides)),
        redact(" ".join(lines[:3])),
        "Hydra's grammar: KEY=VALUE, +KEY=VALUE, ~KEY",
    )


def _keys(values: Any, prefix: str = "") -> list[str]:
    if not isinstance(values, dict):
        return [prefix]
    return [
        key
        for name, value in values.items()
        for key in _keys(value, f"{prefix}.{name}" if prefix else str(name))
    ]
