"""Rehearsal of engine=mindrlhf: the user's unmodified checkouts under msrun on this machine's CPU."""

import json
import math
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from psutil import virtual_memory

from pipeline.errors import Problem
from pipeline.plan import reward_check
from pipeline.plan.graph import Plan
from pipeline.rehearsal import Report
from pipeline.rehearsal.machine import missing_for_mindformers
from pipeline.rehearsal.scratch import Scratch
from stages.engines.mindformers import checkpoints
from stages.engines.mindformers.checkpoints import Moment
from stages.engines.mindformers.rehearsal import shim
from stages.engines.mindformers.rehearsal.proofs import resume_proof
from stages.engines.mindformers.rehearsal.shrink import KILLED_AFTER
from stages.engines.mindrlhf.config import MindrlhfEngine
from stages.engines.mindrlhf.engine import ENGINE, job
from stages.engines.mindrlhf.rehearsal import answers, proofs, shrink
from stages.engines.rehearsal import Proof
from stages.grpo import engine as local
from stages.models.families import family_of, trained_by
from stages.tokenize.records import check_pair


def refusals(plan: Plan) -> Iterator[Problem]:
    """Yield the problems of checkouts, interpreter, tokenizer, model family and memory."""
    config = plan.config
    assert isinstance(config.engine, MindrlhfEngine)
    engine = config.engine
    yield from missing_for_mindformers(plan, ENGINE)
    family = family_of(config.model)
    if not local.trains(family):
        rule = f"{family.title} cannot be rehearsed: of its network no form for a CPU is known"
        remedy = f"rehearse the same recipe with a {trained_by(local.trains)}"
        yield Problem("model", config.model.name, rule, remedy)
        return
    workers, each, free = shrink.workers(engine), shrink.worker_bytes(job(config)), virtual_memory().available
    if workers * each > free:
        needed = f"{workers} x {each / 2**30:.1f} GiB are needed for the workers"
        rule = f"{needed}, and {free / 2**30:.1f} GiB are free"
        yield Problem("memory", None, rule, "a smaller engine.batch_size, or another machine")


def rehearse(plan: Plan, scratch: Path, report: Report) -> Iterator[Proof]:
    """Prepare data, train, kill after a checkpoint, resume, evaluate and export; yield the proofs."""
    config, stages = plan.config, Scratch(scratch, report)
    assert isinstance(config.engine, MindrlhfEngine)
    workers, model, script = shrink.workers(config.engine), scratch / "model", scratch / "script.json"
    small = shrink.shrink(config.plain(), workers, model, script)
    stages.write_model(plan, small)
    small, planned = _with_enough_rows(small, stages)
    yield _data(planned, stages)
    known = _known_answers(planned, stages, scratch)
    longest = max(len(completion) for _, completion in known)
    shrink.set_lengths(small, min(config.rollout.max_tokens, max(shrink.MAX_TOKENS, longest)))
    planned = stages.plan(small)
    shim.write_answers(script, known)
    stages.build_until(planned, "grpo")
    moment = stages.kill(planned, "grpo", partial(_checkpoint, planned))
    yield _accepted(planned)
    checkpoint_files = f"policy, optimizer and reference of every rank after step {KILLED_AFTER}: {moment}"
    yield Proof("checkpoint complete", "proven" if moment else "failed", checkpoint_files)
    moments = _first_moments(planned, stages, moment)
    grpo = stages.build(planned, "grpo")
    yield resume_proof(grpo, moment)
    yield from proofs.training_proofs(grpo, len(known), _cause(planned, stages), moments)
    evaluated = stages.build(planned, "evaluate")
    exported = stages.build(planned, "export")
    (checkpoint,) = (grpo / "train" / "rank_0").glob("*.safetensors")
    yield from proofs.export_proofs(checkpoint, exported, model, planned.config.model)
    yield proofs.evaluation_proof(evaluated)
    yield from proofs.UNPROVEN


def _with_enough_rows(small: dict[str, Any], stages: Scratch) -> tuple[dict[str, Any], Plan]:
    """Increase train_rows until tokenize, which drops prompts that are too long, has rows for STEPS steps."""
    required = small["dataset"]["train_rows"]
    for _ in range(8):
        planned = stages.plan(small)
        rows = check_pair(_tokenized(planned, stages) / "train.mindrecord")
        if rows >= required:
            break
        small["dataset"]["train_rows"] += required - rows
    return small, planned


def _tokenized(planned: Plan, stages: Scratch) -> Path:
    """Build the tokenize stage and those before it; return its artifact."""
    for name in ("fetch_dataset", "fetch"):
        stages.build(planned, name)
    return stages.build(planned, "tokenize")


def _data(planned: Plan, stages: Scratch) -> Proof:
    tokenized = stages.store.path(planned.spec("tokenize").key)
    rows = check_pair(tokenized / "train.mindrecord")
    dataset = planned.config.dataset
    source = dataset.path or dataset.name
    return Proof("data read", "proven", f"{rows} prompts of {source} with the real tokenizer and template")


def _known_answers(planned: Plan, stages: Scratch, scratch: Path) -> list[answers.Answer]:
    inputs = {"tokenize": "tokenize", "fetch": "fetch"}
    stages.run_entry(planned, "stages.engines.mindrlhf.rehearsal.answers:run", inputs, scratch / "answers")
    pairs = json.loads((scratch / "answers" / answers.FILE).read_text(encoding="utf-8"))
    return [(prompt, completion) for prompt, completion in pairs]


def _checkpoint(planned: Plan, work: Path) -> Moment | None:
    """Return the moment of the newest complete checkpoint after KILLED_AFTER steps."""
    newest = checkpoints.newest(work / "checkpoints", planned.config.cards)
    return newest[0] if newest is not None and newest[0] >= Moment(0, KILLED_AFTER) else None


def _first_moments(planned: Plan, stages: Scratch, moment: Moment | None) -> float:
    if moment is None:
        return math.nan
    root = stages.work(planned, "grpo") / "checkpoints"
    return proofs.first_moments(checkpoints.file(root, "optimizer", 0, moment))


def _accepted(planned: Plan) -> Proof:
    config = planned.config
    workers = f"{config.cards} worker{'s' if config.cards > 1 else ''}"
    accepted = (
        f"mindrlhf's classes took every key; {workers}, {config.train.prompts_per_step} prompts x "
        f"{config.rollout.num_generations} completions a step, rows of {job(config).seq_length}"
    )
    return Proof("configuration accepted", "proven", accepted)


def _cause(planned: Plan, stages: Scratch) -> str:
    """Return the likely reason if rewards do not vary."""
    probed = reward_check.warnings(planned, stages.store)
    if probed:
        return "; ".join(probed)
    return (
        "grpoflow's reward functions accept the dataset's answers, mindrlhf's do not: the token that ends a "
        "completion is part of its text there, and ids above 151634 become another letter "
        "(qwen2_5_tokenizer.py:451)"
    )
