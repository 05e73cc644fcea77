"""Proofs of a rehearsed mindrlhf run, from its files and not by the code that wrote them."""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from stages.engines.rehearsal import Proof, proof
from stages.grpo.metrics import read_rows
from stages.models.config import Shape
from stages.models.families import tensor_shapes, weights_of
from stages.weights.strategy.files import plain_name
from stages.weights.tensors import load

Rows = Sequence[dict[str, Any]]
UNPROVEN = (
    Proof("sharding", "unproven", "every worker held complete weights: a CPU has no semi_auto_parallel"),
    Proof("bfloat16", "unproven", "computed in float32: CPUs have no bfloat16 kernels"),
    Proof("HCCL", "unproven", "workers met through MindSpore's CPU collectives"),
    Proof("vLLM", "unproven", "replaced by mindformers' own network, without a cache"),
    Proof("memory of a card", "unproven", "the model was shrunk; grpoflow plan estimates it"),
)


def training_proofs(grpo: Path, answered: int, cause: str) -> Iterator[Proof]:
    """Yield proofs of rewards, loss and gradients; `cause` is likely if rewards do not vary."""
    metrics = read_rows(grpo / "metrics.jsonl")
    known = f"every other completion of {answered} prompts was the dataset's own answer, as vLLM returns it"
    yield proof("prompts of the real file rewarded", bool(metrics), f"{len(metrics)} steps; {known}")
    yield _rewards_varied(metrics, cause)
    losses = [row.get("loss", math.nan) for row in metrics]
    finite = bool(losses) and all(map(math.isfinite, losses))
    yield proof("loss finite", finite, ", ".join(f"{loss:.3g}" for loss in losses))
    yield _gradients(metrics)


def _rewards_varied(metrics: Rows, cause: str) -> Proof:
    spans = [(row.get("reward_min", math.nan), row.get("reward_max", math.nan)) for row in metrics]
    seen = f"per step: {', '.join(f'{low:g} to {high:g}' for low, high in spans)}"
    if any(high > low for low, high in spans):
        return Proof("rewards varied", "proven", seen)
    if spans and all(low != 0 for low, _ in spans):
        cause = "the reward functions of the checkout pay every completion alike, right or wrong"
    return Proof("rewards varied", "failed", f"{seen}: nothing is ever learned from it; {cause}")


def _gradients(metrics: Rows) -> Proof:
    claim = "gradient norm above 0"
    if metrics and not any("grad_norm" in row for row in metrics):
        return Proof(claim, "unproven", "the log has no gradient norms")
    norms = [row.get("grad_norm", math.nan) for row in metrics]
    seen = ", ".join(f"{norm:.3g}" for norm in norms)
    varied = [
        norm > 0
        for row, norm in zip(metrics, norms, strict=True)
        if row.get("reward_max") != row.get("reward_min")
    ]
    holds = bool(varied) and all(varied) and all(map(math.isfinite, norms))
    reason = "; where rewards vary it must be above 0: advantages or log-probabilities are lost"
    return proof(claim, holds, seen if holds else seen + reason)


def export_proofs(checkpoint: Path, exported: Path, start: Path, shape: Shape) -> Iterator[Proof]:
    """Yield proofs that exported tensors are those of rank 0's checkpoint, some of which training changed."""
    saved = {plain_name(name): value for name, value in load(checkpoint).items()}
    trained = _at_hugging_face(saved, shape)
    after, before = load(exported), load(start)
    wrong = [name for name in after if name not in trained or not _is_rounded(trained[name], after[name])]
    lost = sorted(tensor_shapes(weights_of(shape)).keys() - after.keys())
    message = f"{len(after)} tensors are those of {checkpoint.name}, rounded to their stored type"
    if wrong or lost:
        message = f"differ: {', '.join(wrong[:3]) or 'none'}; missing: {', '.join(lost[:3]) or 'none'}"
    yield proof("exported bit for bit", not wrong and not lost, message)
    changed = sum(not np.array_equal(trained[name], before[name]) for name in trained.keys() & before.keys())
    message = f"{changed} of {len(trained)} tensors differ from the start"
    yield proof("training changed the weights", changed > 0, message)


def _at_hugging_face(saved: Mapping[str, Any], shape: Shape) -> dict[str, Any]:
    """Return the tensors at Hugging Face that mindformers' parameters contain; what is missing is NaN."""
    weights = weights_of(shape)
    result = {name: np.full(size, np.nan, np.float32) for name, size in tensor_shapes(weights).items()}
    for weight in weights:
        for block in weight.rows if weight.name in saved else ():
            rows, target = saved[weight.name][block.rows], result[weight.parts[block.part]]
            if weight.stacked:  # a row is an expert
                target[...] = rows[0]
            else:
                target[block.first :: block.step][: len(rows)] = rows
    return {name: value for name, value in result.items() if not np.isnan(value).all()}


def _is_rounded(trained: Any, stored: Any) -> bool:
    """Return True if `stored` is `trained` in float32, or rounded to bfloat16 (ties to even) or float16."""
    bits = trained.view(np.uint32).astype(np.uint64)
    bfloat16 = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16 << 16).astype(np.uint32).view(np.float32)
    float16 = trained.astype(np.float16).astype(np.float32)
    return any(np.array_equal(stored, rounded) for rounded in (trained, bfloat16, float16))


def evaluation_proof(evaluated: Path | None, family: str) -> Proof:
    """Return the proof that the trained model answered held-out prompts; None: no CPU code computes it."""
    if evaluated is None:
        reason = f"the embedded decoder does not compute {family}; vLLM, which does, is replaced"
        return Proof("evaluated", "unproven", reason)
    values = json.loads((evaluated / "result.json").read_text(encoding="utf-8"))
    message = ", ".join(f"{name}={value:.3f}" for name, value in values.items() if isinstance(value, float))
    return Proof("evaluated", "proven", f"{message} (a random model is expected to fail)")
