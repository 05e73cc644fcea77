"""Rehearsal of engine.sft=mindformers: upstream's run_mindformer.py with one worker on this machine's CPU."""

from collections.abc import Iterator
from pathlib import Path

from pipeline.errors import Problem
from pipeline.plan.graph import Plan
from pipeline.rehearsal import Report
from pipeline.rehearsal.machine import missing_for_mindformers
from pipeline.rehearsal.scratch import Scratch
from stages.engines.mindformers import checkpoints
from stages.engines.mindformers.checkpoints import Moment
from stages.engines.mindformers.engine import ENGINE
from stages.engines.mindformers.rehearsal import proofs, shim, shrink
from stages.engines.mindformers.stage import PART
from stages.engines.rehearsal import Proof


def refusals(plan: Plan) -> Iterator[Problem]:
    """Yield the problems of checkout, interpreter, tokenizer and examples."""
    config = plan.config
    yield from missing_for_mindformers(plan, ENGINE)
    if config.sft_data.path is not None:
        rule = "cannot be rehearsed yet: a rehearsal would train on all its rows"
        yield Problem("sft_data.path", config.sft_data.path, rule, "rehearse with a file of six examples")


def rehearse(plan: Plan, scratch: Path, report: Report) -> Iterator[Proof]:
    """Train, kill the run after a checkpoint, resume it, and yield the proofs."""
    config, stages = plan.config, Scratch(scratch, report)
    model, script = scratch / "model", scratch / "script.json"
    small = shrink.shrink(config.plain(), model, script)
    stages.write_model(plan, small)
    shim.write_answers(script, ())
    planned = stages.plan(small)
    stages.build_until(planned, "sft")
    moment = stages.kill(planned, "sft", _checkpoint)
    files = f"weights and both Adam moments after step {shrink.KILLED_AFTER}: {moment}"
    yield Proof("sft: checkpoint complete", "proven" if moment else "failed", files)
    sft = stages.build(planned, "sft")
    yield from proofs.supervised_proofs(sft, moment)
    yield Proof("sft: sharding, bfloat16, sunk data", "unproven", "one worker, whole weights, float32")


def _checkpoint(work: Path) -> Moment | None:
    """Return the moment of the newest complete checkpoint after KILLED_AFTER steps."""
    complete = checkpoints.moments(work / "output", PART, 1)
    return complete[-1] if complete and complete[-1].step >= shrink.KILLED_AFTER else None
