"""engine=toy: grpo from the fetched weights, without evaluation and export."""

from dataclasses import dataclass, replace

from stages import catalog
from stages.base.checks import at_most
from stages.base.graph import Program, Stage
from stages.base.reader import part
from stages.engines.engine import Engine
from toy_engine.config import ToyEngine

GRPO = Program("toy", "toy_engine.stage", version=1)


@dataclass(frozen=True)
class Job:
    """The section that a run is rendered from."""

    engine: ToyEngine


class Toy(Engine[Job]):
    """A program that writes a file of weights."""

    name = "toy"
    settings = ToyEngine
    programs = (GRPO,)

    def trains(self, family):
        """Return True for the family of the built-in model."""
        return family.name == "qwen2"

    def stages(self, run) -> tuple[Stage, ...]:
        """Return the graph after fetch."""
        unused = "engine=toy reads the fetched directory"
        return (
            replace(catalog.CONVERT, skipped=unused),
            catalog.TOKENIZE,
            replace(catalog.STRATEGY, skipped=unused),
            replace(catalog.SPLIT, skipped=unused),
            replace(catalog.SFT, skipped=unused),
            replace(
                catalog.GRPO,
                sections=("model", "engine", "seed"),
                inputs={"tokenize": "tokenize", "fetch": "fetch"},
                computes=True,
                required_files=lambda config: (catalog.RESULT, "weights.bin"),
                program=GRPO,
            ),
            replace(catalog.EVALUATE, skipped="engine=toy trains nothing"),
            replace(catalog.EXPORT, skipped="engine=toy trains nothing"),
        )

    def job(self, run):
        """Return the job of a run."""
        return part(Job, run)

    def problems(self, job):
        """Yield a problem if there are more steps than the program counts."""
        yield from at_most("engine.steps", job.engine.steps, 9, "", "", "ours: the toy counts to 9")
