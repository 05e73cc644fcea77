"""Proofs of a rehearsed run that writes mindformers' checkpoints."""

import json
import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from stages.engines.mindformers.checkpoints import Moment
from stages.engines.rehearsal import Proof
from stages.grpo.metrics import read_rows


def supervised_proofs(sft: Path, moment: Moment | None) -> Iterator[Proof]:
    """Yield proofs of loss and gradients of supervised training, and of its resume from a checkpoint."""
    rows = read_rows(sft / "metrics.jsonl")
    for claim, key in (("sft: loss finite", "loss"), ("sft: gradient norm above 0", "grad_norm")):
        values = [row.get(key, math.nan) for row in rows]
        fine = bool(values) and all(math.isfinite(value) and value > 0 for value in values)
        yield Proof(claim, "proven" if fine else "failed", ", ".join(f"{value:.4g}" for value in values))
    yield replace(resume_proof(sft, moment), what="sft: resumed")


def resume_proof(run: Path, moment: Moment | None) -> Proof:
    """Return the proof that the run resumed from the checkpoint that was complete when it was killed."""
    result = json.loads((run / "result.json").read_text(encoding="utf-8"))
    start = None if result["resumed_from"] is None else Moment(*result["resumed_from"])
    fine = start is not None and moment is not None and start >= moment
    message = (
        f"killed (SIGKILL) after checkpoint {moment}; resumed from {start}, {result['steps']} steps in all"
    )
    return Proof("resumed", "proven" if fine else "failed", message)
