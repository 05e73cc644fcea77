"""The rehearsal of engine.sft=mindformers: run_mindformer.py itself, on one worker of this machine's CPU."""

from collections.abc import Iterator
from pathlib import Path

from pipeline.errors import Problem
from pipeline.plan.graph import Plan
from pipeline.rehearsal import Tell
from pipeline.rehearsal.machine import lacking_of_mindformers
from pipeline.rehearsal.scratch import Scratch
from stages.engines.mindformers import checkpoints
from stages.engines.mindformers.checkpoints import Moment
from stages.engines.mindformers.engine import ENGINE
from stages.engines.mindformers.rehearsal import places, proofs, shim, shrink
from stages.engines.mindformers.stage import PART
from stages.engines.rehearsal import Proof, moved


def refusals(plan: Plan) -> Iterator[Problem]:
    """Checkout, interpreter, tokenizer, examples."""
    config = plan.config
    yield from lacking_of_mindformers(plan, ENGINE)
    if config.mindformers.home is not None:
        yield from moved(Path(config.mindformers.home), "mindformers.home", places.PLACES, places.COMMIT)
    if config.sft_data.path is not None:
        rule = "own examples cannot be rehearsed yet: all of them would be trained on"
        yield Problem("sft_data.path", config.sft_data.path, rule, "rehearse with a file of six examples")


def rehearse(plan: Plan, scratch: Path, tell: Tell) -> Iterator[Proof]:
    """Train, kill, go on; every proof when it is there."""
    config, stages = plan.config, Scratch(scratch, tell)
    model, script = scratch / "model", scratch / "script.json"
    small = shrink.shrink(config.plain(), model, script)
    stages.write_model(plan, small)
    shim.write_script(script, ())
    planned = stages.plan(small)
    stages.build_until(planned, "sft")
    seen: list[Moment] = []

    def is_due(work: Path) -> bool:
        seen[:] = checkpoints.moments(work / "output", PART, 1)[-1:]
        return bool(seen) and seen[0].step >= shrink.KILLED_AFTER

    was_killed = stages.kill(planned, "sft", is_due)
    told = f"weights and both Adam moments after step {shrink.KILLED_AFTER}: {seen[0] if seen else 'none'}"
    yield Proof("sft: checkpoint complete", "proven" if was_killed and seen else "failed", told)
    sft = stages.build(planned, "sft")
    yield from proofs.of_supervised(sft, seen[0] if seen else None)
    yield Proof("sft: sharding, bfloat16, sunk data", "unproven", "one worker, whole weights, float32")
