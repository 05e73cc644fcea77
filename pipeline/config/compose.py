"""Composition of overrides into a resolved plain configuration by Hydra, cached between commands.

Layout names need no file: hydra_plugins/grpoflow/layout_names.py provides them.
"""

from __future__ import annotations

import copy
import hashlib
import json
import re
import shlex
import sys
from collections.abc import Iterable, Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from pipeline.cache import recall, remember
from pipeline.config import experiments, suggestions
from pipeline.config.dependencies import Dependencies, recorded
from pipeline.config.grammar import key_of, parse, word
from pipeline.config.interpolated import convert_interpolated
from pipeline.config.resolvers import RESOLVERS
from pipeline.config.sections import quote_address, remote_problems, secret_problems
from pipeline.errors import NotComposed, Problem
from pipeline.fingerprint import file_state
from stages.base.keys import flat
from stages.base.redact import redact

VALUE = re.compile(
    r"(seed|store|cards|[A-Za-z_]\w*(\.\w+)+)="
)  # a key with a dot, or one that is not a group
LABELS = ("model.name", "dataset.name", "layout.name", "engine.name", "launcher.name")
"""Keys with the name of a group's choice, which cannot be overridden; a test checks that none is missing."""
KIND = "compose"
BUILT_IN = Path(__file__).parents[2] / "conf"
PRESET = "train.preset"
"""Key that chooses from a group below its section; Hydra's own name of the group is train/preset."""
MOST_COMPOSED = 64
"""Upper limit of unresolved configurations that a process keeps."""
LAYOUTS = "grpoflow://layouts"
"""Layouts by their names (hydra_plugins), last in Hydra's search path."""


def compose(overrides: Sequence[str], config_dir: Path | None = None) -> dict[str, Any]:
    """Compose conf/config.yaml with Hydra's overrides into plain dicts, lists and scalars.

    Results are cached because importing Hydra takes longer than a run with nothing to do. A cached result is
    used as long as everything that its composition read is unchanged. The groups in `config_dir` add choices
    to the built-in ones.

    Raises:
        NotComposed: an override is malformed, or names a choice or a key that does not exist.
    """
    if config_dir is not None and not config_dir.is_dir():
        raise NotComposed([Problem("--config-dir", config_dir, "must be a directory")])
    if config_dir is not None and (problems := list(_unused_files(config_dir))):
        raise NotComposed(problems)
    content = {
        "overrides": list(overrides),
        "config_dir": str(config_dir.resolve()) if config_dir else None,
        "code": _states(_code()),
        "python": sys.version,
    }
    key = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
    cached = recall(KIND, key)
    if isinstance(cached, dict) and Dependencies(cached["paths"], cached["variables"]).hold():
        return dict(cached["values"])
    values, read = _compose([quote_address(override) for override in overrides], config_dir)
    if not read.changing:
        remember(KIND, key, {"values": values, "paths": read.paths, "variables": read.variables})
    return values


def _compose(overrides: Sequence[str], config_dir: Path | None) -> tuple[dict[str, Any], Dependencies]:
    """Return a resolved configuration, and what it depends on."""
    from hydra.errors import HydraException
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    if problems := list(label_problems(overrides, config_dir)):
        raise NotComposed(problems)
    for name, function in RESOLVERS.items():
        OmegaConf.register_new_resolver(name, function, replace=True)
    try:
        overrides = with_preset_choice(overrides)
        parsed = {override: parse(override) for override in overrides}
        if several := next((text for text, item in parsed.items() if item.is_sweep_override()), None):
            remedy = f"several values are a sweep: grpoflow sweep {shlex.quote(several)}"
            raise NotComposed([Problem("overrides", several, "must have one value per key", remedy)])
        choices = tuple(override for override in overrides if not VALUE.match(override))
        chosen, read_files = _compose_choices(choices, config_dir)
        config = copy.deepcopy(chosen)
        _set_values(config, [parsed[override] for override in overrides if VALUE.match(override)])
        with recorded() as read:
            convert_interpolated(config)
            values: Any = OmegaConf.to_container(config, resolve=True)
        read.add(read_files)
    except RecursionError as error:
        raise NotComposed([Problem("overrides", None, "a value is nested too deeply")]) from error
    except (HydraException, OmegaConfBaseException, ValueError) as error:
        raise NotComposed([_explain(str(error), overrides, config_dir)]) from error
    if problems := [*remote_problems(values.get("remote")), *secret_problems(values)]:
        raise NotComposed(problems)  # here: a secret must not reach the cache
    return dict(values), read


_composed: dict[tuple[tuple[str, ...], Path | None], tuple[Any, Dependencies]] = {}
"""Choices and --config-dir -> unresolved configuration of this process, and what it depends on."""


def _compose_choices(choices: tuple[str, ...], config_dir: Path | None) -> tuple[Any, Dependencies]:
    """Compose the choices of groups, additions and deletions; the result is not resolved.

    Values are set afterwards, as in Hydra itself. Points of a sweep with the same choices share the result,
    because composing takes 200 ms and setting values 20 ms.
    """
    known = _composed.get((choices, config_dir))
    if known is not None and known[1].hold():
        return known
    with recorded() as read:
        presets = {
            Path(name).stem: file for name, file in config_files(config_dir).items() if in_presets(name)
        }
        config = experiments.compose(choices, lambda words: _with_hydra(words, config_dir), presets)
    if len(_composed) >= MOST_COMPOSED:
        _composed.clear()
    _composed[choices, config_dir] = config, read
    return config, read


def with_preset_choice(overrides: Sequence[str]) -> list[str]:
    """Return overrides with `train.preset=NAME` as Hydra's choice of a group; of several the last counts."""
    chosen = [override for override in overrides if override.startswith(f"{PRESET}=")]
    if not chosen:
        return list(overrides)
    others = [override for override in overrides if override not in chosen]
    name = chosen[-1].partition("=")[2]
    return [*others, f"~{experiments.PRESETS}" if name == "null" else f"{experiments.PRESETS}={name}"]


def in_presets(name: str) -> bool:
    """Return True if a file's relative path is a choice of the group of presets."""
    return Path(name).parent.as_posix() == experiments.PRESETS


def _with_hydra(overrides: Sequence[str], config_dir: Path | None) -> Any:
    """Compose overrides with Hydra, whose own settings stay in the section `hydra`."""
    import hydra
    from hydra.core.global_hydra import GlobalHydra

    path = [] if config_dir is None else [f"file://{config_dir.resolve()}", LAYOUTS]
    searched = [f"hydra.searchpath={word(path)}"] if path else []
    GlobalHydra.instance().clear()  # Hydra refuses a second composition inside @hydra.main otherwise
    # by path: the module `conf` could be a directory of the user's
    with hydra.initialize_config_dir(str(BUILT_IN), version_base="1.3"):
        return hydra.compose("config", overrides=[*overrides, *searched], return_hydra_config=True)


def config_files(config_dir: Path | None) -> dict[str, Path]:
    """Return the files that composition may read, by relative path; a built-in file takes precedence."""
    return {**(_files_below(config_dir) if config_dir else {}), **_files_below(BUILT_IN)}


def _files_below(root: Path) -> dict[str, Path]:
    """Return the configuration files of a directory by relative path, in a fixed order."""
    patterns = ("*.y*ml", "*/*.y*ml", "*/*/*.y*ml")  # rglob would not follow links to directories
    files = [file for pattern in patterns for file in sorted(root.glob(pattern))]
    # Emacs marks a file that it edits with a link to nowhere
    return {str(file.relative_to(root)): file for file in files if file.is_file()}


def _unused_files(config_dir: Path) -> Iterator[Problem]:
    """Yield a problem for each file that differs from the built-in file which is used instead."""
    for name, file in _files_below(config_dir).items():
        built_in = BUILT_IN / name
        if built_in.is_file() and built_in.read_bytes() != file.read_bytes():
            rule = f"is not used: the built-in {name} takes precedence"
            yield Problem("--config-dir", file, rule, "give the file another name")


def label_problems(overrides: Sequence[str], config_dir: Path | None) -> Iterator[Problem]:
    """Yield a problem for each override of a label."""
    for override in overrides:
        if (key := key_of(override)) in LABELS:
            group, value = key.partition(".")[0], override.partition("=")[2].strip("'\"")
            rule = f"is the label of the chosen {group} and cannot be changed"
            is_choice = group == "layout" or f"{group}/{value}.yaml" in config_files(config_dir)
            remedy = f"use {group}={value}" if value and is_choice else f"leave it out, or use {group}=CHOICE"
            yield Problem(key, value or None, rule, remedy)


def _states(files: Iterable[Path]) -> tuple[tuple[str, ...], ...]:
    """Return the files' paths, sizes and times of change."""
    return tuple((str(file), *map(str, file_state(file.stat()))) for file in files)


def _code() -> list[Path]:
    """Return the source files that composition depends on, and one file of each package."""
    plugins = Path(__file__).parents[2] / "hydra_plugins" / "grpoflow"
    packages = [spec.origin for name in ("hydra", "omegaconf") if (spec := find_spec(name)) and spec.origin]
    return [*sorted(Path(__file__).parent.glob("*.py")), *sorted(plugins.glob("*.py")), *map(Path, packages)]


def _set_values(config: Any, overrides: Sequence[Any]) -> None:
    """Set values in a composed configuration as Hydra 1.3.8 does (config_loader_impl.py)."""
    from hydra.errors import ConfigCompositionException
    from omegaconf import OmegaConf
    from omegaconf.errors import ConfigAttributeError, ConfigKeyError

    for override in overrides:
        try:
            OmegaConf.update(config, override.key_or_group, override.value(), merge=True)
        except (ConfigAttributeError, ConfigKeyError) as error:
            raise ConfigCompositionException(f"Could not override '{override.key_or_group}'.") from error


def _explain(message: str, overrides: Sequence[str], config_dir: Path | None) -> Problem:
    """Return Hydra's message of several lines as a Problem."""
    if unknown := re.search(r"Could not override '([^']+)'", message):
        key = unknown.group(1)
        value = next((o.partition("=")[2] for o in overrides if key_of(o) == key), None)
        choices = [override for override in overrides if re.fullmatch(r"[a-z_]+=[\w-]+", override)]
        choices = [choice for choice in choices if key_of(choice) not in (key, "remote")]
        known = flat(compose([*choices, "remote=none"], config_dir))  # $GRPOFLOW_REMOTE may be invalid
        return Problem(key, value, "unknown key", suggestions.for_key(key, known))
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    if choice := re.search(rf"Could not (?:find|load) '({experiments.PRESETS}|[^'/]+)/([^']+)'", message):
        options = [line for line in lines[1:] if re.fullmatch(r"[\w.-]+", line)]
        group = choice.group(1).replace("/", ".")
        remedy = suggestions.for_choice(group, choice.group(2), options)
        return Problem(group, choice.group(2), "no such choice", remedy)
    shown = redact(" ".join(overrides)), redact(" ".join(lines[:3]))
    return Problem("overrides", *shown, "Hydra's grammar: KEY=VALUE, +KEY=VALUE, ~KEY")
