"""When each stage ran, from the manifests: the bars of the timeline."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from stages.report.text import duration, number


@dataclass(frozen=True)
class Bar:
    """One stage on the time axis."""

    stage: str
    start: float
    """Seconds since the first of the run's own stages started; below 0 for an earlier run's stage."""
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
    """Unix time of the first start among them; None where there is none."""
    ended: float | None
    """Unix time of the last end of all stages."""


def timeline(manifests: Mapping[str, Mapping[str, Any]], began: float | None) -> Timeline:
    """Arrange the stages of a run on one axis, in the order in which they started.

    Args:
        manifests: stage -> manifest.
        began: Unix time of the run's start: what had ended before came from the store, as `grpoflow watch`
            tells it too. None: not known, and every stage counts as the run's.
    """
    spans = []
    for stage, manifest in manifests.items():
        start, end = number(manifest.get("started")), number(manifest.get("ended"))
        if start is not None and end is not None and end >= start:
            spans.append((start, end, stage))
    spans.sort()
    visible = [(start, end) for start, end, _ in spans if began is None or end >= began]
    first = min((start for start, _ in visible), default=began or 0.0)
    last = max((end for _, end in visible), default=first)
    wall = max(last - first, 1e-9)
    bars = []
    for start, end, stage in spans:
        reused = began is not None and end < began
        left = 0.0 if reused else 100 * (start - first) / wall
        width = 0.0 if reused else 100 * (end - start) / wall
        memory = number(manifests[stage].get("peak_memory_gib"))
        bars.append(Bar(stage, start - first, end - start, reused, left, width, memory))
    ended = max((end for _, end, _ in spans), default=None)
    return Timeline(tuple(bars), _ticks(wall), last - first, first if visible else None, ended)


def _ticks(wall_s: float) -> tuple[tuple[float, str], ...]:
    steps = (
        0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 28800, 86400,
    )  # fmt: skip
    step = next((step for step in steps if wall_s / step <= 6), wall_s / 5)
    count = int(wall_s / step)
    labels = [(0.0, "0"), *((100 * i * step / wall_s, _short(i * step)) for i in range(1, count + 1))]
    return tuple(labels)


def _short(seconds: float) -> str:
    return duration(seconds).replace(" 00 s", "").replace(" 00 min", "").replace(".0 s", " s")
