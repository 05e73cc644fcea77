"""`grpoflow rehearse`: an engine's own checkouts, executed on this machine's CPU with the model shrunk.

The frame is the same for all engines; what is rehearsed is theirs. To rehearse another one: write a module
with the functions of `Rehearsal` and name it in ENGINES. The frame

- refuses what plan refuses and what `refusals` names (exit code 2),
- gives `rehearse` an empty directory, shows each Proof on stderr when it comes, and takes an exception that
  the pipeline reports (pipeline.errors.REPORTED) as a failed proof,
- prints the table and the last line, writes STORE/.rehearsals/FINGERPRINT/{report.md,report.json},
- remembers what passed by the fingerprint of configuration, data and checkouts (`known`); plan and run tell
  where that is missing.

A rehearsal reuses the product's own stages in a store of its own: `scratch.Scratch`.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Protocol, cast

from pipeline.config import Config
from pipeline.errors import ConfigError, Problem
from pipeline.graph import Plan
from stages.rehearsal import Proof

Tell = Callable[[str], None]
"""Takes a line for people, on stderr."""
ENGINES = {
    "mindrlhf": "pipeline.rehearsal.mindrlhf",
    "mindspeed_rl": "pipeline.rehearsal.mindspeed_rl",
    "mindformers": "pipeline.rehearsal.mindformers",
}
"""engine.name -> its module, with the functions of Rehearsal; mindformers is engine.sft=mindformers."""
WHY_NOT = {
    "local": "engine=local runs on a CPU itself: `grpoflow run` with a small model is its rehearsal",
    "mindrlhf_one_stage": "grpo_one_stage.py stands on mindformers' dev branch of February and March 2025;"
    " what would stand in for a card there is not known",
}


class Rehearsal(Protocol):
    """What a module of ENGINES holds."""

    def checkouts(self, config: Config) -> Mapping[str, str | None]:
        """Setting -> directory of every checkout whose code is executed."""

    def refusals(self, plan: Plan) -> Iterable[Problem]:
        """Why this machine, this configuration or these checkouts cannot be rehearsed."""

    def rehearse(self, plan: Plan, scratch: Path, tell: Tell) -> Iterator[Proof]:
        """Rehearse, in the empty directory `scratch`; what cannot be shown on a CPU comes as unproven."""


def parts(config: Config) -> Iterator[str]:
    """Names in ENGINES or WHY_NOT of what a run executes, in order; local, too, where it is alone."""
    if config.engine.sft == "mindformers":
        yield "mindformers"
    if config.engine.name != "local" or config.engine.sft != "mindformers":
        yield config.engine.name


def of(config: Config) -> dict[str, Rehearsal]:
    """The rehearsals of a run, by name and in order.

    Raises:
        ConfigError: a part of it cannot be rehearsed.
    """
    refused = [name for name in parts(config) if name not in ENGINES]
    if refused:
        raise ConfigError([Problem("engine", name, WHY_NOT[name]) for name in refused])
    return {name: cast(Rehearsal, importlib.import_module(ENGINES[name])) for name in parts(config)}
