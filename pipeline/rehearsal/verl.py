"""Rehearsal of engine=verl: the unmodified verl trains a small model on this machine's CPU."""

import json
from collections.abc import Iterator
from pathlib import Path

from pipeline.errors import Problem
from pipeline.plan.graph import Plan
from pipeline.rehearsal import training
from pipeline.rehearsal.machine import missing_inputs, missing_packages
from pipeline.rehearsal.scratch import Scratch
from stages.engines.rehearsal import Proof, proof, resumed
from stages.engines.verl import files, results, shrink
from stages.engines.verl.config import VerlEngine
from stages.engines.verl.engine import ENGINE, packages
from stages.engines.verl.job import PROGRAMS, RECIPE, TRAIN_DATA, Job, Paths
from stages.grpo.metrics import read_rows

INSTALL = "grpoflow doctor engine=verl engine.device=cpu --constraints > FILE; pip install --requirement FILE"
EQUAL, ROUNDED = 1e-6, 0.02
"""Largest differences of the exported model's logits, as shares of the largest logit: from those of the
shards in bfloat16, which the merger writes, and in float32 (rounding changes a weight by up to 2^-9)."""
UNPROVEN = (
    Proof("rollout by vllm-ascend or SGLang, weights sent to it", "unproven", "transformers generated here"),
    Proof(
        "HCCL, bfloat16, Megatron, kernels of NPUs", "unproven", "gloo, float32 and FSDP2 without offloading"
    ),
    Proof("the run's own model, layout and memory", "unproven", "a small model on one machine"),
    Proof("accuracy", "unproven", "a random model was trained for two steps, with an additional reward"),
)


def refusals(plan: Plan) -> Iterator[Problem]:
    """Yield the problems of tokenizer and interpreter."""
    engine = plan.config.engine
    assert isinstance(engine, VerlEngine)
    yield from missing_inputs(plan, ENGINE)
    yield from missing_packages("engine.python", engine.python, packages("cpu", "transformers"), INSTALL)


def rehearse(plan: Plan, stages: Scratch) -> Iterator[Proof]:
    """Validate the run's own configuration; train, kill, resume and export a small model."""
    stages.display.print_line("validate_config of the run's own configuration …")
    yield _validated(plan, stages.root)
    training.add_reward(stages.root)
    model = stages.root / "model"
    small = shrink.shrink(plan.config.plain(), model, workers=1)
    stages.write_model(plan, small)
    planned = stages.plan(small)
    stages.build_until(planned, "grpo")
    tokenized = stages.store.path(planned.spec("tokenize").key)
    card = json.loads((tokenized / "result.json").read_text(encoding="utf-8"))
    yield stages.data_proof(planned, card["files"]["train"]["rows_out"])
    run = Job.from_run(planned.config)
    killed = stages.kill(planned, "grpo", lambda work: _checkpoint(work, run))
    grpo = stages.build(planned, "grpo")
    yield resumed(grpo, killed)
    rows = read_rows(grpo / "metrics.jsonl")
    yield training.trained(rows)
    yield _merged(Job.from_run(plan.config), grpo, stages.build(planned, "export"))
    two = stages.plan(shrink.shrink(plan.config.plain(), model, workers=2))
    yield training.equal(rows, read_rows(stages.build(two, "grpo") / "metrics.jsonl"))
    if run.rollout.agent is not None:
        yield Proof("calls of rollout.tools", "unproven", "a random model calls no function")
    yield from UNPROVEN


def _validated(plan: Plan, scratch: Path) -> Proof:
    """Let verl compose and check the rendered configuration of the full-size run."""
    run = Job.from_run(plan.config)
    paths, configs = Paths(scratch / "full", scratch / TRAIN_DATA), scratch / "configs"
    configs.mkdir()
    (configs / f"{RECIPE}.yaml").write_text(files.text(run, paths), encoding="utf-8")
    claim = "configuration accepted by verl"
    program = PROGRAMS / "validate.py"
    _, failure = training.run_program(run.engine.python, program, configs, RECIPE)
    if failure:
        return Proof(claim, "failed", failure)
    return Proof(claim, "proven", f"validate_config and typed classes; {run.cards} cards, {run.nodes} nodes")


def _merged(run: Job, grpo: Path, exported: Path) -> Proof:
    """Compare the exported model's logits with those of the shards, computed without verl."""
    claim = "shards merged by verl.model_merger"
    arguments = (PROGRAMS / "logits.py", grpo / results.ACTOR, exported)
    output, failure = training.run_program(run.engine.python, *arguments)
    if failure:
        return Proof(claim, "failed", failure)
    measured = json.loads(output.splitlines()[-1])
    rounded, difference = (measured[name] / measured["largest"] for name in ("rounded", "difference"))
    measurements = (
        f"names and shapes equal the fetched model's; logits differ by {rounded:.2g} of the largest from the "
        f"shards in bfloat16, and by {difference:.2g} from the shards"
    )
    return proof(claim, rounded <= EQUAL and difference <= ROUNDED, measurements)


def _checkpoint(work: Path, run: Job) -> int | None:
    """Return the step of a complete checkpoint whose metrics verl has written, too."""
    step = results.checkpoints(work / "checkpoints", run).tracked()
    return step if step is not None and len(read_rows(work / "metrics.jsonl")) >= step else None
