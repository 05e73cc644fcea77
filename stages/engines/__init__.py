"""Engines: the embedded trainer (local.py), a package for each outside program, and what these share.

A package NAME here is an engine if its module `config` has SETTINGS, the dataclass of the engine's settings,
and its module `engine` has ENGINE, an object of a class derived from stages.engines.engine.Engine. Installed
packages of others add engines by entry points of the group grpoflow.engines, whose values are such classes:

    [project.entry-points."grpoflow.engines"]
    toy = "toy_engine.engine:Toy"

conf/engine/NAME.yaml has an engine's defaults (of engines outside: in a directory for --config-dir), and
failures.yaml beside its module adds to the table of known failures.
"""

from __future__ import annotations

import functools
import glob
import importlib
import pkgutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stages.engines.config import OutsideEngine

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    from stages.engines.engine import Engine
    from stages.models.family import Family
    from stages.sections import Sections

SUPERVISED = "mindformers"
"""Engine that does supervised training before any other engine if engine.sft names it."""
PACKAGES = tuple(sorted(module.name for module in pkgutil.iter_modules(__path__) if module.ispkg))
"""Engines of this project that run outside programs."""


def _entry_points() -> dict[str, EntryPoint]:
    """Return the entry points of other projects' engines by name.

    importlib.metadata, which takes 40 ms, is imported only if an installed distribution has the group.
    """
    files = (file for path in sys.path for file in glob.iglob(f"{glob.escape(path)}/*.dist-info/{DECLARED}"))
    if not any(GROUP.encode() in Path(file).read_bytes() for file in files):
        return {}
    from importlib.metadata import entry_points

    return {point.name: point for point in entry_points(group=GROUP)}


GROUP, DECLARED = "grpoflow.engines", "entry_points.txt"
OUTSIDE = _entry_points()
"""Engines of other projects."""
NAMES = ("local", *(name for name in PACKAGES if name != SUPERVISED), *OUTSIDE)
"""The choices of conf/engine: engines that run grpo, and supervised training alone."""


@functools.cache
def get(name: str) -> Engine[Any]:
    """Return an engine by name; imports only the module of this engine."""
    if name in OUTSIDE:
        engine: Engine[Any] = OUTSIDE[name].load()()
        return engine
    module = f"{__name__}.local" if name == "local" else f"{__name__}.{name}.engine"
    engine = importlib.import_module(module).ENGINE
    return engine


def training(family: Family) -> list[str]:
    """Return the names of the engines that train a family by GRPO."""
    return [name for name in NAMES if name != "supervised" and get(name).trains(family)]


def chosen(run: Sections) -> tuple[Engine[Any], ...]:
    """Return the engines of a run: engine.name, and mindformers if it does the supervised training."""
    return tuple(map(get, (run.engine.name, *((SUPERVISED,) if run.engine.sft == SUPERVISED else ()))))


def computing(run: Sections) -> tuple[Engine[Any], ...]:
    """Return the engines that compute in a run, in order; engine=local only if there is no other."""
    engines = chosen(run)[::-1]
    return tuple(engine for engine in engines if engine.programs) or engines


def settings() -> list[type[OutsideEngine]]:
    """Return the settings' dataclass of each outside engine that runs grpo."""
    classes = [importlib.import_module(f"{__name__}.{name}.config").SETTINGS for name in PACKAGES]
    classes += [get(name).settings for name in OUTSIDE]
    return [cls for cls in classes if issubclass(cls, OutsideEngine)]


def failure_tables() -> list[Path]:
    """Return the tables of known failures that engines bring along."""
    directories = [Path(__file__).parent / name for name in PACKAGES]
    for name in OUTSIDE:
        file = sys.modules[type(get(name)).__module__].__file__
        directories += [Path(file).parent] if file else []
    return sorted(table for directory in directories if (table := directory / "failures.yaml").is_file())
