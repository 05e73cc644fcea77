"""Rehearsal of engine=mindrlhf: the user's unmodified checkouts under msrun on this machine's CPU."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from psutil import virtual_memory

from pipeline.errors import Problem
from pipeline.plan import checks
from pipeline.plan.graph import Plan
from pipeline.rehearsal.machine import missing_for_mindformers
from pipeline.rehearsal.scratch import Scratch
from stages.engines.mindformers.checkpoints import MINDRLHF
from stages.engines.mindformers.rehearsal import shim
from stages.engines.mindrlhf.config import MindrlhfEngine
from stages.engines.mindrlhf.engine import ENGINE
from stages.engines.mindrlhf.job import Job
from stages.engines.mindrlhf.rehearsal import answers, proofs, shrink
from stages.engines.rehearsal import Proof, proof, resumed
from stages.models.families import family_of
from stages.tokenize.records import check_pair


def refusals(plan: Plan) -> Iterator[Problem]:
    """Yield the problems of checkouts, interpreter, tokenizer, model family and memory."""
    config = plan.config
    assert isinstance(config.engine, MindrlhfEngine)
    engine = config.engine
    yield from missing_for_mindformers(plan, ENGINE)
    workers, free = shrink.workers(engine), virtual_memory().available
    small = shrink.shrink(config.plain(), workers, Path("model"), Path("script"))
    each = shrink.worker_bytes(Job.from_config(small))
    if workers * each > free:
        needed = f"{workers} x {each / 2**30:.1f} GiB are needed for the workers"
        rule = f"{needed}, and {free / 2**30:.1f} GiB are free"
        yield Problem("memory", None, rule, "a smaller engine.batch_size, or another machine")


def rehearse(plan: Plan, stages: Scratch) -> Iterator[Proof]:
    """Prepare data, train, kill after a checkpoint, resume, evaluate and export; yield the proofs."""
    config = plan.config
    assert isinstance(config.engine, MindrlhfEngine)
    model, script = stages.root / "model", stages.root / "answers" / answers.FILE
    small = shrink.shrink(config.plain(), shrink.workers(config.engine), model, script)
    stages.write_model(plan, small)
    planned = _with_enough_rows(small, stages)
    yield stages.data_proof(planned, check_pair(_tokenized(planned, stages) / "train.mindrecord"))
    inputs = {"tokenize": "tokenize", "fetch": "fetch"}
    stages.run_entry(planned, "stages.engines.mindrlhf.rehearsal.answers:run", inputs, script.parent)
    known = json.loads(script.read_text(encoding="utf-8"))["answers"]
    longest = max(len(completion) for _, completion in known)
    small["rollout"]["max_tokens"] = min(config.rollout.max_tokens, max(shrink.MAX_TOKENS, longest))
    planned = stages.plan(small)
    stages.build_until(planned, "grpo")
    workers = planned.config.cards
    killed = stages.kill(
        planned, "grpo", lambda work: shim.newest_checkpoint(work / "checkpoints", workers, MINDRLHF)
    )
    accepted = f"mindrlhf's classes took every key; {workers} workers"
    yield Proof("configuration accepted", "proven", accepted)
    files = f"policy, optimizer and reference of every rank after [epoch, step] {killed}"
    yield proof("checkpoint complete", killed is not None, files)
    grpo = stages.build(planned, "grpo")
    yield resumed(grpo, killed)
    yield from proofs.training_proofs(grpo, len(known), _cause(planned, stages))
    answered = None
    if any(spec.name == "evaluate" for spec in planned.specs):
        answered = stages.build(planned, "evaluate")
    exported = stages.build(planned, "export")
    (checkpoint,) = (grpo / "train" / "rank_0").glob("*.safetensors")
    yield from proofs.export_proofs(checkpoint, exported, model, planned.config.model)
    yield proofs.evaluation_proof(answered, family_of(config.model).title)
    yield from proofs.UNPROVEN


def _with_enough_rows(small: dict[str, Any], stages: Scratch) -> Plan:
    """Increase train_rows until tokenize, which drops prompts that are too long, has rows for STEPS steps."""
    required = small["dataset"]["train_rows"]
    for _ in range(8):
        planned = stages.plan(small)
        rows = check_pair(_tokenized(planned, stages) / "train.mindrecord")
        if rows >= required:
            break
        small["dataset"]["train_rows"] += required - rows
    return planned


def _tokenized(planned: Plan, stages: Scratch) -> Path:
    """Build the tokenize stage and those before it; return its artifact."""
    stages.build_until(planned, "tokenize")
    return stages.build(planned, "tokenize")


def _cause(planned: Plan, stages: Scratch) -> str:
    """Return the likely reason if rewards do not vary."""
    probed = checks.reward_warnings(planned, stages.store)
    if probed:
        return "; ".join(probed)
    return (
        "grpoflow's reward functions accept the dataset's answers, mindrlhf's do not: the token that ends a "
        "completion is part of its text there, and ids above 151634 become another letter "
        "(qwen2_5_tokenizer.py:451)"
    )
