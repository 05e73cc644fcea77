"""What a rehearsed run of mindrlhf shows: read from what it left, by other means than those that wrote it."""

import json
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from stages.engines.rehearsal import Proof
from stages.grpo.metrics import read_rows
from stages.models.families import weights_of
from stages.models.family import Shape
from stages.weights.dtypes import as_float32, raw_dtype
from stages.weights.header import StoredTensor, read_header
from stages.weights.prefixes import plain_name

Rows = Sequence[dict[str, Any]]
UNPROVEN = (
    Proof("sharding", "unproven", "every worker held whole weights: a CPU has no semi_auto_parallel"),
    Proof("bfloat16", "unproven", "computed in float32: CPUs have no bfloat16 kernels"),
    Proof("HCCL", "unproven", "workers met through MindSpore's CPU collectives"),
    Proof("vLLM", "unproven", "its place was taken by mindformers' own network, without a cache"),
    Proof("memory of a card", "unproven", "the model was shrunk; grpoflow plan estimates it"),
)


def first_moments(optimizer: Path) -> float:
    """Norm of Adam's first moments in a checkpoint, which are 0 until a gradient was not.

    Source: adam_m.* of mindrlhf utils/adam.py:155, utils/utils.py:168 (0cd087455), 176 (e8a8fc1).
    """
    tensors = read_header(optimizer).tensors.values()
    moments = [tensor for tensor in tensors if tensor.name.startswith("adam_m.")]
    return math.hypot(*(float(np.linalg.norm(as_float32(_raw(moment), moment.dtype))) for moment in moments))


def of_training(grpo: Path, answered: int, cause: str, moments: float) -> Iterator[Proof]:
    """Rewards, loss and gradients.

    Args:
        grpo: the stage's artifact.
        answered: prompts whose other completions were the dataset's own answers.
        cause: why rewards may not vary, as far as it is known.
        moments: see first_moments; it speaks for gradients where no norm of them is logged (0cd087455).
    """
    metrics = read_rows(grpo / "metrics.jsonl")
    samples = read_rows(grpo / "completions.jsonl") if (grpo / "completions.jsonl").exists() else []
    yield _rewarded(metrics, samples, answered)
    yield _varied(metrics, samples, cause)
    yield _finite(metrics)
    yield _gradients(metrics, moments)


def _rewarded(metrics: Rows, samples: Rows, answered: int) -> Proof:
    what = "prompts of the real file rewarded"
    prompts = len({row["prompt"] for row in samples})
    known = f"; every other completion of {answered} prompts was the dataset's own answer, as vLLM returns it"
    if not metrics:
        return Proof(what, "failed", "mindrlhf logged no rewards")
    if not samples:
        return Proof(
            what, "proven", f"{len(metrics)} steps; train.logged_completions=0 keeps no prompts{known}"
        )
    return Proof(
        what, "proven", f"{prompts} prompts, {len(samples)} completions in {len(metrics)} steps{known}"
    )


def _varied(metrics: Rows, samples: Rows, cause: str) -> Proof:
    what = "rewards varied"
    spans = [(row.get("reward_min", math.nan), row.get("reward_max", math.nan)) for row in metrics]
    varied = [step for step, (low, high) in enumerate(spans, 1) if high > low]
    message = ", ".join(f"{low:g} to {high:g}" for low, high in spans)
    if varied:
        return Proof(what, "proven", f"per step: {message}")
    if spans and all(low != 0 for low, _ in spans):
        cause = "the reward functions of the checkout pay every completion alike, right or wrong"
    lengths = [int(row["length"]) for row in samples]
    shown = next((row for row in samples if row["length"] == min(lengths)), None)
    example = f"; for example {shown['completion']!r} with solution {shown['solution']!r}" if shown else ""
    return Proof(what, "failed", f"per step: {message}: nothing is ever learned from it; {cause}{example}")


def _finite(metrics: Rows) -> Proof:
    losses = [row.get("loss", math.nan) for row in metrics]
    message = ", ".join(f"{loss:.3g}" for loss in losses)
    return Proof("loss finite", "proven" if all(map(math.isfinite, losses)) and losses else "failed", message)


def _gradients(metrics: Rows, moments: float) -> Proof:
    what = "gradient norm above 0"
    if metrics and not any("grad_norm" in row for row in metrics):
        message = f"this version logs none; the first moments of its optimizer have norm {moments:.3g}"
        return Proof(what, "proven" if math.isfinite(moments) and moments > 0 else "failed", message)
    norms = [row.get("grad_norm", math.nan) for row in metrics]
    message = ", ".join(f"{norm:.3g}" for norm in norms)
    moved = [row.get("grad_norm", 0) > 0 for row in metrics if row.get("reward_max") != row.get("reward_min")]
    fine = bool(moved) and all(moved) and all(map(math.isfinite, norms))
    why = "" if fine else "; where rewards vary it must be above 0: advantages or log-probabilities are lost"
    return Proof(what, "proven" if fine else "failed", message + why)


def of_export(checkpoint: Path, exported: Path, start: Path, shape: Shape) -> Iterator[Proof]:
    """Check that every exported tensor is the trained one and that training changed at least one.

    Args:
        checkpoint: rank 0's, which is complete: nothing was cut.
        exported: Hugging Face directory.
        start: the model that training began with.
        shape: the model's; parameters of other names are an optimizer's or a trainer's.
    """
    tensors = {plain_name(tensor.name): tensor for tensor in read_header(checkpoint).tensors.values()}
    weights = {weight.parts[0]: weight.name for weight in weights_of(shape)}
    trained = {part: tensors[name] for part, name in weights.items() if name in tensors}
    exported_tensors, before = (_tensors(directory) for directory in (exported, start))
    wrong = [
        name
        for name in exported_tensors
        if name not in trained or not _same(trained[name], exported_tensors[name])
    ]
    lost = sorted(weights.keys() - exported_tensors.keys())
    message = f"{len(exported_tensors)} tensors are those of {checkpoint.name}, rounded to their stored type"
    if wrong or lost:
        message = f"differ: {', '.join(wrong[:3]) or 'none'}; missing: {', '.join(lost[:3]) or 'none'}"
    yield Proof("exported bit for bit", "failed" if wrong or lost else "proven", message)
    moved = sum(_differ(trained[name], before[name]) for name in trained.keys() & before.keys())
    what = "training changed the weights"
    message = f"{moved} of {len(trained)} tensors differ from the start"
    yield Proof(what, "proven" if moved else "failed", message)


def _tensors(directory: Path) -> dict[str, StoredTensor]:
    files = sorted(directory.glob("*.safetensors"))
    return {name: tensor for file in files for name, tensor in read_header(file).tensors.items()}


def _same(trained: StoredTensor, exported: StoredTensor) -> bool:
    """Return True if `trained`, rounded to the dtype of `exported`, has its bytes."""
    first, second = _raw(trained), _raw(exported)
    if trained.dtype == "F32" and exported.dtype == "BF16":  # round to nearest, ties to even
        bits = first.astype(np.uint64)
        first = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
    elif trained.dtype == "F32" and exported.dtype == "F16":
        first = first.view(np.float32).astype(np.float16).view(np.uint16)
    elif trained.dtype != exported.dtype:
        return False
    return trained.shape == exported.shape and bool(np.array_equal(first, second))


def _differ(first: StoredTensor, second: StoredTensor) -> bool:
    """Return True if the stored values differ."""
    return not np.array_equal(as_float32(_raw(first), first.dtype), as_float32(_raw(second), second.dtype))


def _raw(tensor: StoredTensor) -> np.ndarray[Any, Any]:
    count = math.prod(tensor.shape)
    return np.fromfile(tensor.file, raw_dtype(tensor.dtype), count, offset=tensor.offset)


def of_evaluation(evaluated: Path) -> Proof:
    """Check that the trained model answered held-out prompts."""
    values = json.loads((evaluated / "result.json").read_text(encoding="utf-8"))
    message = ", ".join(f"{name}={value:.3f}" for name, value in values.items() if isinstance(value, float))
    return Proof("evaluated", "proven", f"{message} (of a random model nothing else is expected)")
