"""The engines of a run: each is one object (stages/base/engine.py), found by its name in conf/engine."""

from __future__ import annotations

import importlib
import typing
from collections.abc import Iterator
from typing import TYPE_CHECKING

from pipeline.errors import ConfigError, Problem
from stages.base.engine import Engine
from stages.base.identity import field_types
from stages.sections import EngineConfig, Sections

if TYPE_CHECKING:
    from pipeline.config.load import Config

MODULES = {
    name: f"{cls.__module__.rpartition('.')[0]}.engine"
    for cls in typing.get_args(EngineConfig)
    for name in typing.get_args(field_types(cls)["name"])
}
"""Engine -> the module beside its settings, which holds ENGINE."""
SUPERVISED = "mindformers"
"""Trains before any engine where engine.sft names it."""


def of(name: str) -> Engine:
    """The engine of that name; imported only when it is asked for: a plan of another need not load it."""
    module = "stages.engines.mindformers.engine" if name == SUPERVISED else MODULES[name]
    engine: Engine = importlib.import_module(module).ENGINE
    return engine


def outside() -> tuple[Engine, ...]:
    """Every engine that is a program of its own."""
    return tuple(engine for engine in map(of, (*MODULES, SUPERVISED)) if engine.programs)


def chosen(run: Sections) -> tuple[Engine, ...]:
    """Those of a run: its own, and mindformers where that trains before it."""
    return tuple(map(of, (run.engine.name, *((SUPERVISED,) if run.engine.sft == SUPERVISED else ()))))


def parts(run: Sections) -> tuple[Engine, ...]:
    """Those that compute in a run, in order; the embedded one only where it is alone."""
    engines = chosen(run)[::-1]
    return tuple(engine for engine in engines if engine.programs) or engines


def rehearsed(run: Sections) -> dict[str, str | None]:
    """Setting -> directory of every checkout whose code a rehearsal of the run executes.

    Raises:
        ConfigError: a part of it cannot be rehearsed.
    """
    found: dict[str, str | None] = {}
    for engine in parts(run):
        if engine.unrehearsed:
            raise ConfigError([Problem("engine", engine.name, engine.unrehearsed)])
        found.update(engine.homes(run))
    return found


def needs(config: Config) -> Iterator[Problem]:
    """What a run needs that plan and --dry-run do without."""
    from pipeline.engines.machines import machines  # here and below: a plan of one machine need not load it

    for engine in chosen(config):
        yield from engine.lacks(config)
        if engine.programs:
            cards = config.cards if engine.cards is None else engine.cards(config)
            yield from machines(
                config, engine.settings(config).container, f"{engine.section}.container", cards
            )


def notes(config: Config) -> tuple[str, ...]:
    """What a plan should say besides its stages."""
    told = [note for engine in chosen(config)[::-1] for note in engine.notes(config)]
    if config.launcher.name == "local":  # one machine shares everything with itself
        return tuple(told)
    from pipeline.engines.machines import shared

    return (*told, *shared(config))
