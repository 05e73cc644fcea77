"""What a rehearsed run shows that leaves mindformers' checkpoints."""

import json
import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from stages.engines.mindformers.checkpoints import Moment
from stages.engines.rehearsal import Proof
from stages.grpo.metrics import read_rows


def of_supervised(sft: Path, moment: Moment | None) -> Iterator[Proof]:
    """Loss and gradients of supervised training, and whether it went on from a whole checkpoint."""
    rows = read_rows(sft / "metrics.jsonl")
    for what, key in (("sft: loss finite", "loss"), ("sft: gradient norm above 0", "grad_norm")):
        values = [row.get(key, math.nan) for row in rows]
        fine = bool(values) and all(math.isfinite(value) and value > 0 for value in values)
        yield Proof(what, "proven" if fine else "failed", ", ".join(f"{value:.4g}" for value in values))
    yield replace(of_resume(sft, moment), what="sft: resumed")


def of_resume(run: Path, moment: Moment | None) -> Proof:
    """Check that the run resumed from the checkpoint that was complete when it was killed."""
    result = json.loads((run / "result.json").read_text(encoding="utf-8"))
    resumed, steps = result["resumed_from"], result["steps"]
    start = None if resumed is None else Moment(*resumed)
    fine = start is not None and moment is not None and start >= moment
    message = f"killed (SIGKILL) after checkpoint {moment}; went on from {start}, {steps} steps in all"
    return Proof("resumed", "proven" if fine else "failed", message)
