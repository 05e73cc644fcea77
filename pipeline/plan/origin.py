"""Origin of each value of a configuration."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from pipeline.config.compose import VALUE, compose, config_files, flat, search_path
from pipeline.config.directory import complete
from pipeline.config.load import derive


def origins(overrides: Sequence[str], config_dir: Path | None, values: Mapping[str, Any]) -> dict[str, str]:
    """Return the origin of each key: a typed override, a file of conf, or a derivation."""
    composed = compose(overrides, config_dir)
    steps = [flat(composed), flat(derive(complete(composed, overrides)))]
    files = _files(overrides, config_dir)
    typed = {
        override.lstrip("+").partition("=")[0]: override
        for override in overrides
        if VALUE.match(override.lstrip("+"))
    }
    origin = {}
    for key in flat(values):
        before, after = (step.get(key) for step in steps)
        above = [name for name in typed if f"{key}.".startswith(f"{name}.")]
        if above:
            origin[key] = f"typed: {typed[above[-1]]}"
        else:
            origin[key] = files.get(key, "derived") if before == after else "derived"
    return origin


def _files(overrides: Sequence[str], config_dir: Path | None) -> dict[str, str]:
    """Return the file of conf that sets each key last, followed by its value if that is a reference."""
    import hydra
    from hydra.core.global_hydra import GlobalHydra
    from hydra.types import RunMode

    arguments = [
        override for override in overrides if not VALUE.match(override) and not override.startswith("remote=")
    ]
    GlobalHydra.instance().clear()
    with hydra.initialize_config_module("conf", version_base="1.3"):
        loader = GlobalHydra.instance().config_loader()
        listed = loader.compute_defaults_list(
            "config", [*arguments, *search_path(config_dir)], RunMode.RUN
        ).defaults
    texts = config_files(config_dir)
    files: dict[str, str] = {}
    for default in listed:
        path = str(default.config_path)
        if path.startswith("hydra/") or path == "hydra":
            continue
        file = texts.get(f"{path}.yaml")
        prefix = "" if default.package in (None, "", "_global_") else f"{default.package}."
        if file is None:  # a layout name without a file
            files |= {
                f"{prefix}train.{degree}": f"the name {path}"
                for degree in ("data_parallel", "model_parallel")
            }
            continue
        body = yaml.safe_load(file.read_text(encoding="utf-8")) or {}
        shown = f"conf/{path}.yaml" if config_dir is None or config_dir not in file.parents else str(file)
        for key, value in flat({name: part for name, part in body.items() if name != "defaults"}).items():
            reference = f": {value}" if isinstance(value, str) and "${" in value else ""
            files[f"{prefix}{key}"] = shown + reference
    return files
