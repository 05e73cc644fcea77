"""Engines by name (conf/engine); each is one object (stages/engines/declaration.py)."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from launch.diagnose import failures
from pipeline.errors import Problem
from stages.engines import failure_tables, packages
from stages.engines.engine import Engine
from stages.sections import Sections

if TYPE_CHECKING:
    from pipeline.config.sections import Config
    from stages.models.family import Family

SUPERVISED = "mindformers"
"""Engine that does supervised training before any other engine if engine.sft names it."""
MODULES = {"local": "stages.engines.local"} | {name: f"stages.engines.{name}.engine" for name in packages()}
"""Engine -> the module that defines ENGINE."""
NAMES = tuple(name for name in MODULES if name != SUPERVISED)
"""Engines that run grpo: the choices of conf/engine."""
for _table in failure_tables():
    failures.add(_table)


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


def needs(config: Config) -> Iterator[Problem]:
    """Yield a problem for each missing requirement that only a run has, not plan or run --render."""
    from pipeline.engines import machines  # here and below: not needed to plan a run on one machine

    for engine in chosen(config):
        yield from engine.missing(config)
        if engine.programs:
            cards = max(stage.workers for stage in engine.stages(config))
            yield from machines.problems(config, engine, cards)


def notes(config: Config) -> list[str]:
    """Return the notes that are shown below a plan's stages."""
    lines = [note for engine in chosen(config)[::-1] for note in engine.all_notes(config)]
    if config.launcher.name == "local":  # nothing to share between nodes
        return lines
    from pipeline.engines import machines

    return [*lines, *machines.notes(config)]
