"""Time of a run: when each stage ran, and the parts of a GRPO step."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from stages.report.curves import points
from stages.report.text import duration, number

TICKS_S = (
    0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 28800, 86400,
)  # fmt: skip
STEP_PARTS = {"rollout_s": "Rollout", "reference_s": "Reference", "train_s": "Update"}


@dataclass(frozen=True)
class Bar:
    """One stage on the time axis."""

    stage: str
    duration_s: float
    reused: bool
    """Finished before the run began."""
    left: float
    """Position of the bar, percent of the axis."""
    width: float
    peak_memory_gib: float | None


@dataclass(frozen=True)
class Timeline:
    """All stages whose manifest has a start and an end."""

    bars: tuple[Bar, ...]
    ticks: tuple[tuple[float, str], ...]
    """(position in percent, label) of the axis."""
    wall_s: float
    """Seconds from the first start to the last end of the stages that were not reused."""
    started: float | None
    """Unix time of the first start among them; None if there is none."""
    ended: float | None
    """Unix time of the last end of all stages."""


def timeline(manifests: Mapping[str, Mapping[str, Any]], began: float | None) -> Timeline:
    """Arrange the stages of a run on one axis, in the order in which they started.

    Args:
        manifests: stage -> manifest.
        began: Unix time of the run's start. Stages that ended earlier were reused from the store. If it is
            None, all stages count as the run's.
    """
    spans = []
    for stage, manifest in manifests.items():
        start, end = number(manifest.get("started")), number(manifest.get("ended"))
        if start is not None and end is not None and end >= start:
            spans.append((start, end, stage))
    spans.sort()
    ran = [(start, end) for start, end, _ in spans if began is None or end >= began]
    first = min((start for start, _ in ran), default=0.0)
    last = max((end for _, end in ran), default=first)
    wall = max(last - first, 1e-9)
    bars = []
    for start, end, stage in spans:
        reused = began is not None and end < began
        left, width = (0.0, 0.0) if reused else (100 * (start - first) / wall, 100 * (end - start) / wall)
        bars.append(
            Bar(stage, end - start, reused, left, width, number(manifests[stage].get("peak_memory_gib")))
        )
    ended = max((end for _, end, _ in spans), default=None)
    return Timeline(tuple(bars), _ticks(wall), last - first, first if ran else None, ended)


def step_time(metrics: Sequence[Mapping[str, Any]]) -> list[tuple[int, str, float, float]]:
    """Return the parts of a step's time: (colour, part, mean seconds, percent of the step)."""
    means = {}
    for key in (*STEP_PARTS, "step_s"):
        values = [value for _, value in points(metrics, key)]
        means[key] = sum(values) / len(values) if values else 0.0
    parts = [(name, means[key]) for key, name in STEP_PARTS.items()]
    parts.append(("Everything else", max(0.0, means["step_s"] - sum(seconds for _, seconds in parts))))
    total = sum(seconds for _, seconds in parts)
    return [
        (i + 1, name, seconds, 100 * seconds / total)
        for i, (name, seconds) in enumerate(parts)
        if seconds > 0
    ]


def _ticks(wall_s: float) -> tuple[tuple[float, str], ...]:
    step = next((step for step in TICKS_S if wall_s / step <= 6), wall_s / 5)
    labels = [(100 * i * step / wall_s, _short(i * step)) for i in range(1, int(wall_s / step) + 1)]
    return ((0.0, "0"), *labels)


def _short(seconds: float) -> str:
    return duration(seconds).replace(" 00 s", "").replace(" 00 min", "").replace(".0 s", " s")
