"""engine=sleeping: split and sft for each seed, then grpo for each learning rate."""

from dataclasses import dataclass
from typing import Annotated, Literal

from stages import catalog
from stages.base.bounds import PositiveFloat
from stages.base.graph import Stage
from stages.base.identity import NotInIdentity
from stages.engines.config import OutsideEngine
from stages.engines.engine import Engine

ENTRY = "sleeping_engine.stage"


@dataclass(frozen=True)
class SleepingEngine(OutsideEngine):
    """Settings of engine=sleeping."""

    name: Literal["sleeping"]
    split_s: Annotated[PositiveFloat, NotInIdentity()]
    """Seconds that the stage sleeps."""
    sft_s: Annotated[PositiveFloat, NotInIdentity()]
    """Seconds that the stage sleeps."""
    grpo_s: Annotated[PositiveFloat, NotInIdentity()]
    """Seconds that the stage sleeps."""


class Sleeping(Engine):
    """Stages that sleep; they read no data, so a run of them alone fetches nothing."""

    name = "sleeping"
    settings = SleepingEngine

    def trains(self, family):
        """Return True for all families."""
        return True

    def stages(self, run) -> tuple[Stage, ...]:
        """Return split, sft and grpo, and why the others are left out."""
        unused = "engine=sleeping reads no files"
        names = ("convert", "tokenize", "strategy", "evaluate", "export")
        skipped = [Stage(name, sections=(), skipped=unused) for name in names]
        common = {"computes": True, "entry": ENTRY, "required_files": lambda config: (catalog.RESULT,)}
        return (
            *skipped,
            Stage("split", sections=("engine", "seed"), **common),
            Stage("sft", sections=("engine", "seed"), inputs={"split": "split"}, **common),
            Stage("grpo", sections=("engine", "seed", "train"), inputs={"sft": "sft"}, **common),
        )

    def job(self, run):
        """Return the run."""
        return run
