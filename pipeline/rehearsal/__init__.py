"""`grpoflow rehearse`: execution of an engine's checkouts on this machine's CPU with a small model.

Each engine names a module with the functions of `Rehearsal` (Engine.rehearsal). The command does the rest:

- It refuses what `plan` refuses and what `refusals` yields (exit code 2).
- It passes an empty directory with a store to `rehearse`, prints each Proof on stderr at once, and counts an
  exception in pipeline.errors.REPORTED as a failed proof.
- It prints the table and the last line, and writes STORE/.rehearsals/FINGERPRINT/report.json (the fingerprint
  of the run's grpo stage).
"""

import importlib
from collections.abc import Iterable, Iterator
from typing import Protocol, cast

from pipeline.config.sections import Config
from pipeline.errors import ConfigError, Problem
from pipeline.plan.graph import Plan
from pipeline.rehearsal.scratch import Scratch
from stages import engines
from stages.engines.rehearsal import Proof


class Rehearsal(Protocol):
    """Interface of the module that Engine.rehearsal names."""

    def refusals(self, plan: Plan) -> Iterable[Problem]:
        """Yield the reasons why this configuration cannot be rehearsed on this machine."""

    def rehearse(self, plan: Plan, stages: Scratch) -> Iterator[Proof]:
        """Rehearse in an empty directory and yield proofs; those that need a card are unproven."""


def of(config: Config) -> dict[str, Rehearsal]:
    """Return the rehearsals of a run, by name and in order; raise ConfigError if an engine has none."""
    modules = {}
    for engine in engines.computing(config):
        if engine.unrehearsed:
            raise ConfigError([Problem("engine", engine.name, engine.unrehearsed)])
        modules[engine.name] = cast(Rehearsal, importlib.import_module(engine.rehearsal))
    return modules
