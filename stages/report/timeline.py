"""When each stage ran, from the manifests: the bars of the timeline."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from stages.report.artifacts import mapping
from stages.report.text import duration, number

# Between two stages of one run lie only a process start and a commit, which reads every byte of the
# artifact (here: on a slow disk). A longer silence means that what lies before it was made by an earlier
# run (or attempt) and found in the store by this one.
MAX_GAP_S = 60.0
COMMIT_BYTES_PER_S = 50e6


@dataclass(frozen=True)
class Bar:
    """One stage on the time axis."""

    stage: str
    start: float
    """Seconds since the run's first stage started; below 0 for an earlier run's stage."""
    duration_s: float
    reused: bool
    """Made by an earlier run or attempt."""
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
    """From the first start to the last end of the stages that were not reused."""
    started: float | None
    """Unix time of the run's first start."""
    ended: float | None


def timeline(manifests: Mapping[str, Mapping[str, Any]]) -> Timeline:
    """Arrange the stages of a run on one axis, in the order in which they started."""
    spans = []
    for stage, manifest in manifests.items():
        start, end = number(manifest.get("started")), number(manifest.get("ended"))
        if start is not None and end is not None and end >= start:
            spans.append((start, end, stage))
    if not spans:
        return Timeline((), (), 0.0, None, None)
    spans.sort()
    first = _first_of_this_run([(start, end, _commit_s(manifests[stage])) for start, end, stage in spans])
    last = max(end for _, end, _ in spans)
    wall = max(last - first, 1e-9)
    bars = []
    for start, end, stage in spans:
        reused = start < first
        left = 0.0 if reused else 100 * (start - first) / wall
        width = 0.0 if reused else 100 * (end - start) / wall
        memory = number(manifests[stage].get("peak_memory_gib"))
        bars.append(Bar(stage, start - first, end - start, reused, left, width, memory))
    return Timeline(tuple(bars), _ticks(wall), last - first, first, last)


def _first_of_this_run(spans: list[tuple[float, float, float]]) -> float:
    """Walk back over (start, end, commit seconds) from the last stage until nothing ran for MAX_GAP_S."""
    first = max(spans, key=lambda span: span[1])[0]
    for start, end, commit_s in sorted(spans, key=lambda span: -span[1]):
        if end + commit_s < first - MAX_GAP_S:
            break
        first = min(first, start)
    return first


def _commit_s(manifest: Mapping[str, Any]) -> float:
    sizes = (number(mapping(entry).get("size")) for entry in mapping(manifest.get("files")).values())
    return sum(size or 0.0 for size in sizes) / COMMIT_BYTES_PER_S


def _ticks(wall_s: float) -> tuple[tuple[float, str], ...]:
    steps = (
        0.1,
        0.2,
        0.5,
        1,
        2,
        5,
        10,
        15,
        30,
        60,
        120,
        300,
        600,
        900,
        1800,
        3600,
        7200,
        14400,
        28800,
        86400,
    )
    step = next((step for step in steps if wall_s / step <= 6), wall_s / 5)
    count = int(wall_s / step)
    labels = [(0.0, "0"), *((100 * i * step / wall_s, _short(i * step)) for i in range(1, count + 1))]
    return tuple(labels)


def _short(seconds: float) -> str:
    return duration(seconds).replace(" 00 s", "").replace(" 00 min", "").replace(".0 s", " s")
