"""Rehearsal of engine.sft=mindformers: upstream's run_mindformer.py with one worker on this machine's CPU."""

from collections.abc import Iterator

from pipeline.errors import Problem
from pipeline.plan.graph import Plan
from pipeline.rehearsal.machine import missing_for_mindformers
from pipeline.rehearsal.scratch import Scratch
from stages.engines.mindformers.engine import ENGINE
from stages.engines.mindformers.rehearsal import shim
from stages.engines.mindformers.stage import PART
from stages.engines.rehearsal import Proof, positive, proof, resumed
from stages.grpo.metrics import read_rows


def refusals(plan: Plan) -> Iterator[Problem]:
    """Yield the problems of checkout, interpreter, tokenizer and examples."""
    config = plan.config
    yield from missing_for_mindformers(plan, ENGINE)
    if config.sft_data.path is not None:
        rule = "cannot be rehearsed yet: a rehearsal would train on all its rows"
        yield Problem("sft_data.path", config.sft_data.path, rule, "rehearse with a file of six examples")


def rehearse(plan: Plan, stages: Scratch) -> Iterator[Proof]:
    """Train, kill the run after a checkpoint, resume it, and yield the proofs."""
    model, script = stages.root / "model", stages.root / "script.json"
    small = shim.shrink(plan.config.plain(), model, script)
    stages.write_model(plan, small)
    planned = stages.plan(small)
    stages.build_until(planned, "sft")
    killed = stages.kill(planned, "sft", lambda work: shim.newest_checkpoint(work / "output", 1, [PART]))
    files = f"weights and both Adam moments after [epoch, step] {killed}"
    yield proof("sft: checkpoint complete", killed is not None, files)
    sft = stages.build(planned, "sft")
    rows = read_rows(sft / "metrics.jsonl")
    yield positive("sft: loss finite", rows, "loss")
    yield positive("sft: gradient norm above 0", rows, "grad_norm")
    yield resumed(sft, killed, "sft: resumed")
    yield Proof("sft: sharding, bfloat16, sunk data", "unproven", "one worker, whole weights, float32")
