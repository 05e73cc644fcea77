"""Time of a run: how long each stage took, and the parts of a GRPO step."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from stages.report.readings import points
from stages.report.text import number

STEP_PARTS = {"rollout_s": "Rollout", "reference_s": "Reference", "train_s": "Update"}


@dataclass(frozen=True)
class Span:
    """Time of one stage."""

    stage: str
    started: float
    ended: float
    reused: bool
    """Finished before the run began."""
    peak_memory_gib: float | None


def spans(manifests: Mapping[str, Mapping[str, Any]], began: float | None) -> list[Span]:
    """Return the stages whose manifest has a start and an end, in the order in which they started.

    Stages that ended before `began`, the Unix time of the run's start, were reused. None: none was.
    """
    result = []
    for stage, manifest in manifests.items():
        start, end = number(manifest.get("started")), number(manifest.get("ended"))
        if start is not None and end is not None and end >= start:
            reused = began is not None and end < began
            result.append(Span(stage, start, end, reused, number(manifest.get("peak_memory_gib"))))
    return sorted(result, key=lambda span: span.started)


def worked_s(stages: Sequence[Span]) -> float | None:
    """Return the seconds in which at least one stage ran that was not reused; waiting does not count."""
    ran = [(span.started, span.ended) for span in stages if not span.reused]
    return covered_s(ran) if ran else None


def covered_s(intervals: Iterable[tuple[float, float]]) -> float:
    """Return the length of the union of intervals (start, end)."""
    total, reached = 0.0, -math.inf
    for start, end in sorted(intervals):
        total += max(0.0, end - max(start, reached))
        reached = max(reached, end)
    return total


def step_time(metrics: Sequence[Mapping[str, Any]]) -> list[tuple[str, float, float]]:
    """Return the parts of a step's time: (part, mean seconds, percent of the step)."""
    means = {}
    for key in (*STEP_PARTS, "step_s"):
        values = [value for _, value in points(metrics, key)]
        means[key] = sum(values) / len(values) if values else 0.0
    parts = [(name, means[key]) for key, name in STEP_PARTS.items()]
    parts.append(("Everything else", max(0.0, means["step_s"] - sum(seconds for _, seconds in parts))))
    total = sum(seconds for _, seconds in parts)
    return [(name, seconds, 100 * seconds / total) for name, seconds in parts if seconds > 0]
