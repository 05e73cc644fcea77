"""Engines that run as separate programs: one package each, and the modules that they share.

A package NAME here is an engine if its module `config` has SETTINGS, the dataclass of the engine's settings,
and its module `engine` has ENGINE (stages.engines.declaration.Engine). conf/engine/NAME.yaml has the
defaults, and failures.yaml in the package adds to the table of known failures. No other file lists the
engines. Packages in a directory `grpoflow_engines` on PYTHONPATH are engines, too; their YAML is in a
directory for --config-dir. The module `local` declares the embedded trainer as an engine.
"""

from __future__ import annotations

import importlib
import pkgutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stages.engines.config import OutsideEngine

if TYPE_CHECKING:
    from stages.engines.engine import Engine
    from stages.models.family import Family
    from stages.sections import Sections

__path__ += [str(path) for entry in sys.path if (path := Path(entry) / "grpoflow_engines").is_dir()]


def packages() -> list[str]:
    """Return the names of all packages of engines, sorted."""
    return sorted(module.name for module in pkgutil.iter_modules(__path__) if module.ispkg)


SUPERVISED = "mindformers"
"""Engine that does supervised training before any other engine if engine.sft names it."""
MODULES = {"local": f"{__name__}.local"} | {name: f"{__name__}.{name}.engine" for name in packages()}
"""Engine -> the module that defines ENGINE."""
NAMES = tuple(name for name in MODULES if name != SUPERVISED)
"""Engines that run grpo: the choices of conf/engine."""


def get(name: str) -> Engine[Any]:
    """Return an engine by name; imports only the module of this engine."""
    engine: Engine[Any] = importlib.import_module(MODULES[name]).ENGINE
    return engine


def training(family: Family) -> list[str]:
    """Return the names of the engines that train a family by GRPO."""
    return [name for name in NAMES if get(name).trains(family)]


def chosen(run: Sections) -> tuple[Engine[Any], ...]:
    """Return the engines of a run: engine.name, and mindformers if it does the supervised training."""
    return tuple(map(get, (run.engine.name, *((SUPERVISED,) if run.engine.sft == SUPERVISED else ()))))


def computing(run: Sections) -> tuple[Engine[Any], ...]:
    """Return the engines that compute in a run, in order; engine=local only if there is no other."""
    engines = chosen(run)[::-1]
    return tuple(engine for engine in engines if engine.programs) or engines


def settings() -> list[type[OutsideEngine]]:
    """Return the settings' dataclass of each engine that runs grpo."""
    classes = (importlib.import_module(f"{__name__}.{name}.config").SETTINGS for name in packages())
    return [cls for cls in classes if issubclass(cls, OutsideEngine)]


def failure_tables() -> list[Path]:
    """Return the tables of known failures that engines bring along."""
    return sorted(table for directory in __path__ for table in Path(directory).glob("*/failures.yaml"))
