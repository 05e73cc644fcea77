"""Composition of overrides into a resolved plain configuration by Hydra.

Layout names need no file: hydra_plugins/grpoflow/layout_names.py provides them.
"""

from __future__ import annotations

import copy
import difflib
import functools
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from pipeline.config import remote
from pipeline.config.resolvers import RESOLVERS
from pipeline.errors import ConfigError, Problem
from pipeline.fingerprint import file_state
from stages.base.redact import redact

VALUE = re.compile(
    r"(seed|store|cards|[A-Za-z_]\w*(\.\w+)+)="
)  # a key with a dot, or one that is not a group


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
    from hydra.errors import HydraException
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    from pipeline.config import refused  # imported here, because importing Hydra takes as long as a no-op run

    overrides = [remote.as_override(override) for override in overrides]
    if broken := list(refused.problems(overrides, config_roots(config_dir))):
        raise ConfigError(broken)
    choices = tuple(override for override in overrides if not VALUE.match(override))
    values = [override for override in overrides if VALUE.match(override)]
    for name, function in RESOLVERS.items():
        OmegaConf.register_new_resolver(name, function, replace=True)
    try:
        config = copy.deepcopy(_choices(choices, config_dir, _state(config_dir)))
        _set_values(config, values)
        container: Any = OmegaConf.to_container(config, resolve=True)
    except (HydraException, OmegaConfBaseException, ValueError) as error:
        raise ConfigError([_explain(str(error), overrides, config_dir)]) from error
    if broken := list(remote.problems(container.get("remote"))):
        raise ConfigError(broken)  # here: a secret must not reach the cache of composed configurations
    return dict(container)


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
