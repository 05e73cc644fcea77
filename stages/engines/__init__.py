"""Engines that run as separate programs: one package each, and the modules that they share.

A package NAME here is an engine if its module `config` has SETTINGS, the dataclass of the engine's settings,
and its module `engine` has ENGINE (stages.engines.declaration.Engine). conf/engine/NAME.yaml has the
defaults, and failures.yaml in the package adds to the table of known failures. No other file lists the
engines. Packages in a directory `grpoflow_engines` on PYTHONPATH are engines, too; their YAML is in a
directory for --config-dir. The module `local` declares the embedded trainer as an engine.
"""

import importlib
import pkgutil
import sys
from pathlib import Path

from stages.engines.config import OutsideEngine

__path__ += [str(path) for entry in sys.path if (path := Path(entry) / "grpoflow_engines").is_dir()]


def packages() -> list[str]:
    """Return the names of all packages of engines, sorted."""
    return sorted(module.name for module in pkgutil.iter_modules(__path__) if module.ispkg)


def settings() -> list[type[OutsideEngine]]:
    """Return the settings' dataclass of each engine that runs grpo."""
    classes = (importlib.import_module(f"{__name__}.{name}.config").SETTINGS for name in packages())
    return [cls for cls in classes if issubclass(cls, OutsideEngine)]


def failure_tables() -> list[Path]:
    """Return the tables of known failures that engines bring along."""
    return sorted(table for directory in __path__ for table in Path(directory).glob("*/failures.yaml"))
