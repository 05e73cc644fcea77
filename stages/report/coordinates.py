"""Parallel coordinates of a sweep: an axis per varied key and one for the result, a line per point."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from matplotlib.ticker import MaxNLocator

from stages.report.curves import STEPS
from stages.report.text import neutral, number, percent

WIDTH, TOP, BOTTOM, HEIGHT = 980.0, 34.0, 286.0, 304.0
"""Of the drawing, and where its axes begin and end, px."""
LEFT, RIGHT = 116.0, 850.0
"""Where the first and the last axis stand; the labels of both lie outside."""
MAX_KEYS = 7
MAX_LINES = 200
MAX_VALUES = 12
"""Labels of one axis; of more values each second, third, … has one."""
CHARACTER = 7.0
"""At most the usual width of a character, px."""


@dataclass(frozen=True)
class Mark:
    """A text on an axis."""

    y: float
    text: str


@dataclass(frozen=True)
class Axis:
    """One vertical axis."""

    x: float
    name: str
    marks: tuple[Mark, ...]


@dataclass(frozen=True)
class Line:
    """One point of the sweep."""

    path: str
    """As SVG's polyline takes it."""
    end: Mark
    """Where it meets the axis of the result; of the best point with its label."""
    told: str
    """Shown while a pointer rests on it."""


@dataclass(frozen=True)
class Coordinates:
    """The finished drawing."""

    axes: tuple[Axis, ...]
    lines: tuple[Line, ...]
    """All but the best."""
    best: Line
    alt: str
    unkeyed: int
    """Keys that have no axis, for want of room."""
    undrawn: int
    """Points with a result that have no line."""
    width: float = WIDTH
    height: float = HEIGHT
    top: float = TOP
    bottom: float = BOTTOM


def coordinates(
    keys: Sequence[str], points: Sequence[tuple[int, Mapping[str, str], float]]
) -> Coordinates | None:
    """Draw the points of a sweep; None where there is nothing to compare.

    Args:
        keys: those that differ between points.
        points: (number, key -> value, accuracy as a share of 1) per point with a result, the best first.
    """
    shown, drawn = keys[:MAX_KEYS], points[:MAX_LINES]
    if not shown or len(drawn) < 2:
        return None
    step = (RIGHT - LEFT) / len(shown)
    room = min(int(step / CHARACTER) - 2, 30)
    places = [_places([chosen.get(key, "") for _, chosen, _ in drawn]) for key in shown]
    ticks, height = _scale([accuracy for _, _, accuracy in drawn])
    lines = []
    for i, (point, chosen, accuracy) in enumerate(drawn):
        ys = [place[chosen.get(key, "")] for key, place in zip(shown, places, strict=True)]
        ys.append(height(accuracy))
        path = " ".join(f"{LEFT + k * step:.1f},{y:.1f}" for k, y in enumerate(ys))
        told = " ".join(f"{clip(key, 60)}={clip(chosen.get(key, ''), 60)}" for key in shown)
        label = f"{percent(accuracy)}, point {point}" if i == 0 else ""
        lines.append(Line(path, Mark(ys[-1], label), f"point {point}: {told}: {percent(accuracy)}"))
    axes = []
    for k, (key, place) in enumerate(zip(shown, places, strict=True)):
        wide = room if k else min(room, int(LEFT / CHARACTER) - 2)
        labelled = list(place.items())[:: -(-len(place) // MAX_VALUES)]
        marks = tuple(Mark(y, clip(value, wide) or "default") for value, y in labelled)
        # The end of a key tells more than its start: train.… is common to most.
        name = key if len(key) <= room else "…" + key[1 - room :]
        axes.append(Axis(LEFT + k * step, name, marks))
    best = lines[0]
    clear = tuple(tick for tick in ticks if abs(tick.y - best.end.y) > 14)  # not below the best's label
    axes.append(Axis(RIGHT, "accuracy", clear))
    accuracies = [accuracy for _, _, accuracy in drawn]
    alt = (
        f"Parallel coordinates: {len(drawn)} points over {', '.join(clip(key, 60) for key in shown)}; greedy "
        f"accuracy after GRPO from {percent(min(accuracies))} to {percent(max(accuracies))}. "
        f"Best: {best.told}."
    )
    return Coordinates(
        tuple(axes), tuple(lines[1:]), best, alt, len(keys) - len(shown), len(points) - len(drawn)
    )


def clip(text: str, limit: int) -> str:
    """One line of at most `limit` characters, safe to show."""
    line = " ".join(neutral(text[: 2 * limit]).split())
    return line if len(line) <= limit else line[: limit - 1] + "…"


def _places(values: Sequence[str]) -> dict[str, float]:
    """Value -> y: equal distances in the values' order, so that 1e-5, 1e-4 and 1e-3 need no logarithm.

    The largest number stands at the top; texts stand in the alphabet's order from the top.
    """
    distinct = sorted(set(values))
    numbers = {value: _number(value) for value in distinct}
    if None not in numbers.values():
        distinct.sort(key=lambda value: numbers[value] or 0.0, reverse=True)
    if len(distinct) == 1:
        return {distinct[0]: (TOP + BOTTOM) / 2}
    step = (BOTTOM - TOP) / (len(distinct) - 1)
    return {value: TOP + i * step for i, value in enumerate(distinct)}


def _number(text: str) -> float | None:
    try:
        return number(float(text))
    except ValueError:
        return None


def _scale(accuracies: Sequence[float]) -> tuple[list[Mark], Callable[[float], float]]:
    """Ticks around all accuracies, and what places an accuracy between them."""
    low, high = min(accuracies), max(accuracies)
    if high - low < 1e-9:
        low, high = low - 0.01, high + 0.01
    found = [float(tick) for tick in MaxNLocator(5, steps=STEPS).tick_values(low, high)]

    def height(accuracy: float) -> float:
        return BOTTOM - (BOTTOM - TOP) * (accuracy - found[0]) / (found[-1] - found[0])

    return [Mark(height(tick), percent(tick)) for tick in found], height
