"""Rehearsal of engine=areal: the unmodified AReaL trains a small model on this machine's CPU."""

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.errors import Problem
from pipeline.plan.graph import Plan
from pipeline.rehearsal import training
from pipeline.rehearsal.machine import missing_packages, tokenizer_directory
from pipeline.rehearsal.scratch import Scratch
from stages.engines import programs
from stages.engines.areal import files, results, shrink
from stages.engines.areal.config import ArealEngine
from stages.engines.areal.engine import VERSIONS
from stages.engines.areal.job import PROGRAMS, TRAIN_DATA, Job, Paths
from stages.engines.areal.train import MODEL
from stages.engines.rehearsal import Proof, proof, resumed
from stages.grpo.metrics import read_rows
from stages.weights.tensors import load

INSTALL = "install AReaL's packages and AReaL as docs/engines/areal.md says, for a CPU"
UNPROVEN = (
    Proof(
        "rollout by vllm-ascend, weights sent by xccl", "unproven", "grpoflow's server read them from disk"
    ),
    Proof("HCCL, bfloat16, flash attention, Ray on several nodes", "unproven", "gloo and float32 on one CPU"),
    Proof("the run's own model, layout and memory", "unproven", "a small model on one machine"),
    Proof("accuracy", "unproven", "a random model was trained for two steps, with an additional reward"),
)


def refusals(plan: Plan) -> Iterator[Problem]:
    """Yield the problems of tokenizer and interpreter."""
    engine = plan.config.engine
    assert isinstance(engine, ArealEngine)
    if tokenizer_directory(plan) is None:
        rule = "is needed with config.json and the tokenizer's files; weights are not"
        remedy = "give model.path=DIR or model.tokenizer_path=DIR"
        yield Problem("model.path", plan.config.model.path, rule, remedy)
    packages = (*programs.windows(VERSIONS, "all"), *programs.windows(VERSIONS, "cpu"))
    yield from missing_packages("engine.python", engine.python, packages, INSTALL)


def rehearse(plan: Plan, stages: Scratch) -> Iterator[Proof]:
    """Check the run's own configuration; train, kill, resume and export a small model."""
    stages.display.print_line("GRPOConfig of the run's own configuration …")
    yield _validated(plan, stages.root)
    training.add_reward(stages.root)
    model, logs = stages.root / "model", [stages.root / f"server_{count}.jsonl" for count in (1, 2)]
    small = shrink.shrink(plan.config.plain(), model, 1, logs[0])
    stages.write_model(plan, small)
    planned = stages.plan(small)
    stages.build_until(planned, "grpo")
    tokenized = stages.store.path(planned.spec("tokenize").key)
    card = json.loads((tokenized / "result.json").read_text(encoding="utf-8"))
    yield stages.data_proof(planned, card["files"]["train"]["rows_out"])
    killed = stages.kill(planned, "grpo", _complete_step)
    grpo = stages.build(planned, "grpo")
    yield resumed(grpo, killed)
    rows = read_rows(grpo / "metrics.jsonl")
    yield training.trained(rows)
    yield _served(logs[0], grpo / MODEL)
    run = Job.from_run(planned.config)
    yield _ages(rows, run)
    stages.build(planned, "export")
    yield Proof(
        "model exported", "proven", "names and shapes equal the fetched model's; all numbers are finite"
    )
    if run.is_async:
        detail = "with engine.mode=async, which completions a step gets depends on time"
        yield Proof("two workers train like one", "unproven", detail)
    else:
        two = stages.plan(shrink.shrink(plan.config.plain(), model, 2, logs[1]))
        yield training.equal(rows, read_rows(stages.build(two, "grpo") / "metrics.jsonl"))
    yield from UNPROVEN


def _validated(plan: Plan, scratch: Path) -> Proof:
    """Let AReaL build the configuration of the full-size run."""
    run, file = Job.from_run(plan.config), scratch / "full.yaml"
    file.write_text(files.text(run, Paths(scratch / "full", scratch / TRAIN_DATA)), encoding="utf-8")
    home = run.engine.areal_home
    program = PROGRAMS / "grpoflow_areal" / "validate.py"
    _, failure = training.run_program(run.engine.python, program, file, *([home] if home else []))
    claim = "configuration accepted by AReaL"
    if failure:
        return Proof(claim, "failed", failure)
    return Proof(claim, "proven", f"GRPOConfig; {run.cards} cards, {run.nodes} nodes")


def _complete_step(work: Path) -> int | None:
    """Return the step of a complete state; the driver names it after it has written the step's metrics."""
    state = results.read_state(work / "checkpoints")
    return None if state is None else state[1]


def _served(log: Path, model: Path) -> Proof:
    """Compare the weights that the server loaded last with the trained ones."""
    lines = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
    loaded = [line["digest"] for line in lines if line["event"] == "load"]
    trained = digest(load(model))
    detail = f"digests {', '.join(loaded)} loaded; the trained model has {trained}"
    return proof("the server has the trained weights", loaded[-1] == trained, detail)


def digest(tensors: Any) -> str:
    """Return the digest that the server logs of weights (programs/grpoflow_areal/cpu_server.py)."""
    total = hashlib.sha256()
    for name in sorted(tensors):
        if name == "lm_head.weight" and "model.embed_tokens.weight" in tensors and _tied(tensors):
            continue
        total.update(name.encode())
        total.update(np.ascontiguousarray(tensors[name], np.float32).tobytes())
    return total.hexdigest()[:16]


def _tied(tensors: Any) -> bool:
    return np.array_equal(tensors["lm_head.weight"], tensors["model.embed_tokens.weight"])


def _ages(rows: list[dict[str, Any]], run: Job) -> Proof:
    """Compare the ages of tokens with engine.staleness."""
    oldest = max(row.get("staleness_max", 0.0) for row in rows)
    detail = f"at most {oldest:.0f} updates old; engine.staleness={run.staleness}"
    return proof(f"completions of engine.mode={run.engine.mode}", oldest <= run.staleness, detail)
