"""Values of a figure's curves, to read when pointing at the figure and to download as CSV.

Both work without a script, so the page's Content-Security-Policy allows none. Each step has an element over
the plot, whose text the style sheet shows while the pointer is on it. The link to a CSV file contains
its data.
"""

import csv
import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any
from urllib.parse import quote

from stages.report.text import figure, number

Points = list[tuple[float, float]]
MAX_ROWS = 500
"""Rows of a CSV file. Of longer runs, a row has the means over neighbouring steps."""
MAX_LABEL = 24


@dataclass(frozen=True)
class Reading:
    """The values at one step of a figure, or the means over neighbouring steps."""

    left: float
    """Position in percent of the plot's width."""
    width: float
    steps: str
    values: tuple[tuple[int, str, str], ...]
    """(colour number, label, value) per series that has one; colour 0 and no label for a single series."""


def points(rows: Sequence[Mapping[str, Any]], key: str) -> Points:
    """Return (step, value) of one metric by step; of a step repeated after a resume, the later one."""
    curve: dict[float, float] = {}
    for row in rows:
        step, value = number(row.get("step")), number(row.get(key))
        if step is not None and value is not None:
            curve[step] = value
    return sorted(curve.items())


def span(curves: Sequence[Points]) -> tuple[float, float]:
    """Return the first and the last step on the x axis; the last point has some room to its right."""
    steps = [step for curve in curves for step, _ in curve]
    return min(steps), max(steps) + 0.01 * (max(steps) - min(steps))


def readings(
    series: Mapping[str, Points], axis: tuple[float, float], show: Callable[[object], str], most: int
) -> list[Reading]:
    """Return at most `most` readings, which together cover the plot, whose x axis has the range `axis`."""
    grouped = groups(series, most)
    centres = [(steps[0] + steps[-1]) / 2 for steps, _ in grouped]
    edges = [axis[0], *((a + b) / 2 for a, b in pairwise(centres)), axis[1]]
    scale = 100 / (axis[1] - axis[0]) if axis[1] > axis[0] else 0
    result = []
    for (steps, means), (low, high) in zip(grouped, pairwise(edges), strict=True):
        values = [
            (i, label[:MAX_LABEL], show(mean)) if len(series) > 1 else (0, "", show(mean))
            for i, (label, mean) in enumerate(zip(series, means, strict=True), start=1)
            if mean is not None
        ]
        name = f"step {figure(steps[0])}"
        name += f" to {figure(steps[-1])}, means" if len(steps) > 1 else ""
        left = scale * (low - axis[0])
        result.append(Reading(left, scale * (high - low) if scale else 100, name, tuple(values)))
    return result


def csv_link(title: str, series: Mapping[str, Points]) -> str:
    """Return a data: URL with a CSV file: a column of steps and one per series.

    Each column's name begins with the title, so that no text of a user begins a cell, which a spreadsheet
    could take for a formula.
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["step", *(f"{title}: {label}" if len(series) > 1 else title for label in series)])
    for steps, means in groups(series, MAX_ROWS):
        step = sum(steps) / len(steps)
        writer.writerow([f"{step:.8g}", *("" if mean is None else f"{mean:.6g}" for mean in means)])
    return f"data:text/csv;charset=utf-8,{quote(text.getvalue(), safe=',:')}"


def groups(series: Mapping[str, Points], most: int) -> list[tuple[list[float], list[float | None]]]:
    """Return at most `most` groups of neighbouring steps, each with the mean of every series in it."""
    steps = sorted({step for curve in series.values() for step, _ in curve})
    size = max(1, -(-len(steps) // most))
    values = [dict(curve) for curve in series.values()]
    result = []
    for group in (steps[i : i + size] for i in range(0, len(steps), size)):
        known = [[curve[step] for step in group if step in curve] for curve in values]
        result.append((group, [sum(part) / len(part) if part else None for part in known]))
    return result
