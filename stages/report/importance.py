"""The influence of each key of a sweep on the results, and its points in parallel coordinates.

The influence is eta squared (the squared correlation ratio): the share of the result's variance that lies
between the groups of points with equal values of a key, sum of n_g (mean_g - mean)^2 over groups g, divided
by sum of (y - mean)^2 over points. If a key has no influence, each assignment of results to points is equally
likely, and the expectation of eta squared is (k - 1) / (n - 1) for k groups and n points.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from stages.catalog import STAGES
from stages.report.graph import declared
from stages.report.text import neutral, number, shorten

MAX_VALUES = 8
"""Numeric keys with more values are grouped into quarters of their values."""
MAX_AXES, MAX_DRAWN = 8, 150
MAX_KEY, MAX_TICK = 300, 16


@dataclass(frozen=True)
class Measured:
    """One point: its number, the value of each swept key, and its result (a share of 1)."""

    number: int
    chosen: Mapping[str, str]
    result: float
    artifact: str = ""
    """Artifact that holds the result; points with the same one were measured once. Empty: unknown."""


@dataclass(frozen=True)
class Importance:
    """Influence of one key."""

    key: str
    eta_squared: float
    by_chance: float
    """Expectation of eta squared if the key has no influence."""
    means: tuple[tuple[str, float], ...]
    """(value or range of values, mean result) of each group; empty if there are many."""

    @property
    def is_known(self) -> bool:
        """False if each point has a value of its own, so that the key explains everything by chance."""
        return self.by_chance < 1


def may_influence(key: str) -> bool:
    """Return False if only stages that come after evaluate read the section of an override's key.

    These are report and export: the accuracy was measured before they began.
    """
    return key.lstrip("+~").partition(".")[0] not in _later_sections()


def _later_sections() -> set[str]:
    """Return the sections that no stage reads whose artifact evaluate needs, but a later one does."""
    reads = declared([*STAGES])
    needed, waiting = set[str](), ["evaluate"]
    while waiting:
        stage = waiting.pop()
        needed.add(stage)
        waiting += [name for name in reads[stage] if name not in needed]
    before = {section for stage in needed for section in STAGES[stage].sections}
    return {section for stage in STAGES.values() for section in stage.sections} - before


def importances(points: Sequence[Measured], keys: Sequence[str]) -> list[Importance]:
    """Return the influence of each key, by the difference from chance; none if all results are equal.

    A key that no result depends on, such as report.title, is left out.
    """
    mean = sum(point.result for point in points) / max(1, len(points))
    total = sum((point.result - mean) ** 2 for point in points)
    if len(points) < 3 or total == 0:
        return []
    influences = []
    for key in keys:
        if _changes_nothing(points, key):
            continue
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
    return sorted(influences, key=lambda each: (not each.is_known, each.by_chance - each.eta_squared))


def _changes_nothing(points: Sequence[Measured], key: str) -> bool:
    """Return True if points that differ in `key` alone have the same artifact, wherever there are such."""
    artifacts: dict[tuple[tuple[str, str], ...], dict[str, str]] = {}
    for point in points:
        others = tuple(sorted((name, value) for name, value in point.chosen.items() if name != key))
        artifacts.setdefault(others, {})[point.chosen.get(key, "")] = point.artifact
    compared = [list(by_value.values()) for by_value in artifacts.values() if len(by_value) > 1]
    return bool(compared) and all(names[0] and len(set(names)) == 1 for names in compared)


def parallel(points: Sequence[Measured], keys: Sequence[str]) -> dict[str, Any]:
    """Return points and axes as parallel.js draws them: an axis for each of the first keys, and the result.

    The values of a key are spaced evenly, in their order. Of many points (the best first), an even selection
    is drawn. Plotly's own parcoords would need eval, which the page's policy forbids, and WebGL.
    """
    keys = keys[:MAX_AXES]
    values = [_ordered([point.chosen.get(key, "") for point in points]) for key in keys]
    places = [{value: i for i, value in enumerate(each)} for each in values]
    drawn = points[:: max(1, -(-len(points) // MAX_DRAWN))]
    return {
        "axes": [
            {"name": shorten(key, MAX_KEY), "values": [_short(neutral(value)) or "–" for value in each]}
            for key, each in zip(keys, values, strict=True)
        ],
        "points": [
            [point.number, point.result]
            + [place[point.chosen.get(key, "")] for key, place in zip(keys, places, strict=True)]
            for point in drawn
        ],
    }


def _group_names(values: Sequence[str]) -> dict[str, str]:
    """Return value -> its group: the value itself, or one of four ranges of a numeric key."""
    ordered = _ordered(values)
    if len(ordered) <= MAX_VALUES or any(_number(value) is None for value in ordered):
        return {value: value for value in ordered}
    quarters = [ordered[len(ordered) * i // 4 : len(ordered) * (i + 1) // 4] for i in range(4)]
    return {value: f"{part[0]}–{part[-1]}" for part in quarters for value in part}


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
    return text if len(text) <= MAX_TICK else f"…{text[1 - MAX_TICK :]}"
