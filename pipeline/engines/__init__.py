"""The engines are a table: one module each, named as in conf/engine, with what the pipeline asks of it."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any, Protocol, cast

if TYPE_CHECKING:
    from pipeline.config.load import Config
    from pipeline.engines.stage import Load, Stage
    from pipeline.errors import Problem
    from stages.memory import RoleMemory

ENGINES = ("local", "mindrlhf", "mindrlhf_one_stage", "mindspeed_rl")


class Engine(Protocol):
    """What each module holds."""

    def stages(self, config: Config) -> tuple[Stage, ...]:
        """Its part of the graph, in order: from convert to export."""

    def derive(self, values: dict[str, Any]) -> None:
        """Fill in what follows from its own settings, in the whole plain configuration.

        Raises KeyError or TypeError on values of a wrong type, which are reported when they are read.
        """

    def problems(self, config: Config) -> Iterable[Problem]:
        """The rules that a configuration breaks."""

    def needs(self, config: Config) -> Iterable[Problem]:
        """What a run needs that plan and --dry-run do without."""

    def notes(self, config: Config) -> tuple[str, ...]:
        """What a plan should say besides its stages."""

    def memory(self, config: Config) -> tuple[RoleMemory, ...]:
        """The estimate of each role."""

    def shortage(self, config: Config, roles: Sequence[RoleMemory], have: int | None = None) -> list[str]:
        """What may not fit, and by how much."""

    def load(self, config: Config) -> Load:
        """What layouts are ranked by."""

    def rehearsed(self, config: Config) -> Mapping[str, str | None]:
        """Setting -> directory of every checkout whose code a rehearsal executes.

        Raises ConfigError where there is no rehearsal, with the reason.
        """


def of(name: str) -> Engine:
    """The engine of that name; imported only when it is asked for: a plan of another need not load it."""
    if name not in ENGINES:
        raise KeyError(name)
    return cast(Engine, importlib.import_module(f"{__name__}.{name}"))


def supervised() -> ModuleType:
    """Supervised training for any engine (engine.sft=mindformers); imported only when it is asked for."""
    return importlib.import_module(f"{__name__}.mindformers")


def parts(config: Config) -> tuple[str, ...]:
    """Who computes in a run, in order: mindformers (engine.sft), the engine; local only where it is alone."""
    if config.engine.sft != "mindformers":
        return (config.engine.name,)
    return ("mindformers",) if config.engine.name == "local" else ("mindformers", config.engine.name)


def rehearsed(config: Config) -> dict[str, str | None]:
    """Setting -> directory of every checkout whose code a rehearsal of the run executes.

    Raises:
        ConfigError: a part of it cannot be rehearsed.
    """
    found: dict[str, str | None] = {}
    for name in parts(config):
        engine = supervised() if name == "mindformers" else of(name)
        found.update(engine.rehearsed(config))
    return found


def needs(config: Config) -> Iterator[Problem]:
    """What a run needs that plan and --dry-run do without."""
    yield from of(config.engine.name).needs(config)
    if config.engine.sft == "mindformers":
        yield from supervised().needs(config)


def notes(config: Config) -> tuple[str, ...]:
    """What a plan should say besides its stages."""
    first = supervised().notes(config) if config.engine.sft == "mindformers" else ()
    if config.launcher.name == "local":  # one machine shares everything with itself
        return (*first, *of(config.engine.name).notes(config))
    from pipeline.engines.machines import shared

    return (*first, *of(config.engine.name).notes(config), *shared(config))
