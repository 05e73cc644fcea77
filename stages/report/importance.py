"""The influence of swept keys on a result: eta squared of each key, and all points in parallel coordinates.

Eta squared (the squared correlation ratio) of a key is the share of the result's variance that lies between
the groups of points with equal values: sum of n_g (mean_g - mean)^2 over groups g, divided by sum of
(y - mean)^2 over points. If a key has no influence, each assignment of results to points is equally likely,
and the expectation of eta squared is (k - 1) / (n - 1) for k groups and n points.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from stages.report.text import number, percent, shorten

MAX_VALUES = 8
"""Numeric keys with more values are grouped into quarters of their values."""
MAX_AXES, MAX_LINES = 8, 150
WIDTH, TOP, BOTTOM = 1000, 40, 270
"""Size of the picture, and the range of its axes, in px of the SVG's coordinates."""
MAX_LABEL = 16


@dataclass(frozen=True)
class Measured:
    """One point: its number, the value of each swept key, and its result (a share of 1)."""

    number: int
    chosen: Mapping[str, str]
    result: float


@dataclass(frozen=True)
class Importance:
    """Influence of one key."""

    key: str
    eta_squared: float
    by_chance: float
    """Expectation of eta squared if the key has no influence."""
    means: tuple[tuple[str, float], ...]
    """(value or range of values, mean result) of each group; empty if there are many."""


@dataclass(frozen=True)
class Axis:
    """One axis of the picture."""

    x: float
    label: str
    ticks: tuple[tuple[float, str], ...]
    """(y, value)."""


@dataclass(frozen=True)
class Line:
    """One point of the sweep in the picture."""

    path: str
    """Corners of an SVG polyline."""
    title: str
    opacity: float


def importances(points: Sequence[Measured], keys: Sequence[str]) -> list[Importance]:
    """Return the influence of each key, by the difference from chance; none if all results are equal."""
    mean = sum(point.result for point in points) / max(1, len(points))
    total = sum((point.result - mean) ** 2 for point in points)
    if len(points) < 3 or total == 0:
        return []
    influences = []
    for key in keys:
        groups: dict[str, list[float]] = {}
        names = _group_names([point.chosen.get(key, "") for point in points])
        for point in points:
            groups.setdefault(names[point.chosen.get(key, "")], []).append(point.result)
        means = {name: sum(results) / len(results) for name, results in groups.items()}
        between = sum(len(results) * (means[name] - mean) ** 2 for name, results in groups.items())
        chance = (len(groups) - 1) / (len(points) - 1)
        shown = dict.fromkeys(names.values()) if len(groups) <= MAX_VALUES else ()
        each = tuple((_short(name) or "–", means[name]) for name in shown)
        influences.append(Importance(key, between / total, chance, each))
    return sorted(influences, key=lambda each: each.by_chance - each.eta_squared)


def parallel(points: Sequence[Measured], keys: Sequence[str]) -> tuple[list[Axis], list[Line]]:
    """Return axes and lines of the picture: an axis for each of the first keys, and one for the result.

    The values of a key are spaced evenly, in their order. Of many points (the best first), an even selection
    is drawn.
    """
    keys = keys[:MAX_AXES]
    gap = (WIDTH - 160) / len(keys)
    axes, heights = [], []
    for i, key in enumerate(keys):
        values = _ordered([point.chosen.get(key, "") for point in points])
        heights.append({value: _height((j + 0.5) / len(values)) for j, value in enumerate(values)})
        shown = values if len(values) <= MAX_VALUES else [values[0], values[len(values) // 2], values[-1]]
        ticks = tuple((heights[-1][value], _short(value) or "–") for value in shown)
        axes.append(Axis(40 + i * gap, _short(key), ticks))
    high, low = points[0].result, points[-1].result
    span = (high - low) or 1.0
    axes.append(Axis(WIDTH - 120, "accuracy after", ((TOP + 12, percent(high)), (BOTTOM + 4, percent(low)))))
    lines = []
    drawn = points[:: -(-len(points) // MAX_LINES)]
    for rank, point in enumerate(drawn):
        corners = [height[point.chosen.get(key, "")] for key, height in zip(keys, heights, strict=True)]
        corners.append(_height((point.result - low) / span))
        path = " ".join(f"{axis.x:.0f},{y:.1f}" for axis, y in zip(axes, corners, strict=True))
        chosen = " ".join(f"{key}={_short(point.chosen.get(key, ''))}" for key in keys)
        title = f"point {point.number}: {chosen} → {percent(point.result)}"
        lines.append(Line(path, shorten(title, 300), 1 - 0.75 * rank / len(drawn)))
    return axes, lines


def _group_names(values: Sequence[str]) -> dict[str, str]:
    """Return value -> its group: the value itself, or one of four ranges of a numeric key."""
    ordered = _ordered(values)
    if len(ordered) <= MAX_VALUES or any(_number(value) is None for value in ordered):
        return {value: value for value in ordered}
    quarters = [ordered[len(ordered) * i // 4 : len(ordered) * (i + 1) // 4] for i in range(4)]
    return {value: f"{part[0]} to {part[-1]}" for part in quarters for value in part}


def _ordered(values: Sequence[str]) -> list[str]:
    """Return the distinct values: numbers by size, then texts in their order of appearance."""
    numbers = {value: _number(value) for value in values}
    return sorted(numbers, key=lambda value: (numbers[value] is None, numbers[value] or 0.0))


def _number(value: str) -> float | None:
    try:
        return number(float(value))
    except ValueError:
        return None


def _short(text: str) -> str:
    """Return the end of a text, which distinguishes keys and file names."""
    return text if len(text) <= MAX_LABEL else f"…{text[1 - MAX_LABEL :]}"


def _height(share: float) -> float:
    return BOTTOM - share * (BOTTOM - TOP)
