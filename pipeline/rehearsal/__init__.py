"""`grpoflow rehearse`: an engine's own checkouts, executed on this machine's CPU with the model shrunk.

The frame is the same for all engines; what is rehearsed is theirs. To rehearse another one: write a module
with the functions of `Rehearsal` and name it in ENGINES. The frame

- refuses what plan refuses and what `refusals` names (exit code 2),
- gives `rehearse` an empty directory, shows each Proof on stderr when it comes, and takes an exception that
  the pipeline reports (pipeline.errors.REPORTED) as a failed proof,
- prints the table and the last line, writes STORE/.rehearsals/FINGERPRINT/{report.md,report.json},
- remembers what passed by the fingerprint of configuration, data and checkouts (plan/rehearsed.py); plan and
  run tell where that is missing.

A rehearsal reuses the product's own stages in a store of its own: `scratch.Scratch`.
"""

import importlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Protocol, cast

from pipeline import engines
from pipeline.config.load import Config
from pipeline.errors import Problem
from pipeline.plan.graph import Plan
from stages.engines.rehearsal import Proof

Tell = Callable[[str], None]
"""Takes a line for people, on stderr."""
ENGINES = {
    "mindrlhf": "pipeline.rehearsal.mindrlhf",
    "mindspeed_rl": "pipeline.rehearsal.mindspeed_rl",
    "mindformers": "pipeline.rehearsal.mindformers",
}
"""A part of a run (engines.parts) -> its module, with the functions of Rehearsal."""


class Rehearsal(Protocol):
    """What a module of ENGINES holds."""

    def refusals(self, plan: Plan) -> Iterable[Problem]:
        """Why this machine, this configuration or these checkouts cannot be rehearsed."""

    def rehearse(self, plan: Plan, scratch: Path, tell: Tell) -> Iterator[Proof]:
        """Rehearse, in the empty directory `scratch`; what cannot be shown on a CPU comes as unproven."""


def of(config: Config) -> dict[str, Rehearsal]:
    """The rehearsals of a run, by name and in order.

    Raises:
        ConfigError: a part of it cannot be rehearsed.
    """
    engines.rehearsed(config)
    names = [engine.name for engine in engines.parts(config)]
    return {name: cast(Rehearsal, importlib.import_module(ENGINES[name])) for name in names}
