"""The page of a sweep: the best point, all points in a table, their curves, and the influence of each key.

The influence is eta squared (the squared correlation ratio): the share of the result's variance that lies
between the groups of points with equal values of a key, sum of n_g (mean_g - mean)^2 over groups g, divided
by sum of (y - mean)^2 over points. If a key has no influence, each assignment of results to points is equally
likely, and the expectation of eta squared is (k - 1) / (n - 1) for k groups and n points.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from stages.report.artifacts import mapping, points
from stages.report.charts import MAX_SWEPT, PLOTLY, Chart, data, overlaid
from stages.report.details import spans
from stages.report.headline import GREEDY, NOISE, differ, gain_text, indistinct, pairs, share_of, tiles
from stages.report.language import translate
from stages.report.page import render_page
from stages.report.text import duration, figure, moment, neutral, number, percent, shorten

MAX_NAMED, MAX_FAINT = 6, 30
"""Lines with a colour and a label, and without."""
PAGE_SIZE = 50
"""Rows of a table that are visible at first; further ones are text that tables.js parses."""
TEXT_LIMIT, TEXT_BUDGET = 300, 100_000
"""Characters of one value, and of all values of one table; of a message ten times as many."""
Manifests = Mapping[str, Mapping[str, Any]]
Cell = tuple[float | None, str]
"""The value to sort by, and its text."""
NO_CELL: Cell = (None, "")
LAST_SHARE = 0.1
"""Part of a training's steps whose mean is its end."""
ENDS = (
    ("reward", "Reward", False),
    ("accuracy", "Accuracy while sampling", True),
    ("kl", "KL to the reference", False),
    ("entropy", "Entropy", False),
    ("completion_length", "Completion length", False),
    ("zero_variance_share", "Groups without signal", True),
    ("completion_cut_share", "Cut completions", True),
)
"""(metric, its column, whether it is a share) of the table that compares the ends of trainings."""
MAX_VALUES = 8
"""Numeric keys with more values are grouped into quarters of their values."""
MAX_RIVALS = 200
"""Points that the page sets beside the best one: those with the highest accuracies."""
MAX_AXES, MAX_DRAWN = 8, 150
MAX_TICK = 16


@dataclass(frozen=True)
class SweepPoint:
    """One point, as the page needs it."""

    number: int
    state: str
    """finished, failed, invalid or pending."""
    message: str
    chosen: Mapping[str, str]
    """Key -> value, of the keys that differ between points."""
    command: str
    result: Mapping[str, Any]
    """evaluate's result.json; {} without one."""
    artifacts: Mapping[str, str]
    """Stage -> artifact; equal artifacts are shared."""

    @property
    def overrides(self) -> str:
        """The keys that differ between points, as overrides."""
        return " ".join(f"{key}={value}" for key, value in self.chosen.items())


def render(
    title: str,
    command: str,
    written: float,
    sweep_points: Sequence[SweepPoint],
    manifests: Manifests,
    metrics: Mapping[str, Sequence[Mapping[str, Any]]],
) -> str:
    """Return the complete page as HTML.

    Args:
        title: id of the sweep.
        command: the command line that continues it.
        written: Unix time of this page.
        sweep_points: all points.
        manifests: artifact -> manifest.
        metrics: artifact of grpo -> rows of its metrics.jsonl.
    """
    ranked = sorted(sweep_points, key=_rank)
    best = ranked[0] if ranked and _accuracy(ranked[0]) is not None else None
    keys = list(dict.fromkeys(key for point in sweep_points for key in point.chosen))
    seconds = {span.stage: span.ended - span.started for span in spans(manifests, None)}
    close = indistinct([(point.number, point.result) for point in ranked if _accuracy(point) is not None])
    columns, rows = _table(ranked, best, close, keys, manifests, seconds)
    curves, undrawn = _curves(ranked, metrics)
    measured = [
        Measured(point.number, point.chosen, accuracy)
        for point in ranked
        if (accuracy := _accuracy(point)) is not None
    ]
    influence = importances(measured, keys)
    unfinished = [point for point in sweep_points if point.state != "finished"]
    states = Counter(point.state for point in sweep_points)
    values = {
        "title": title,
        "keys": [shorten(key, TEXT_LIMIT) for key in keys],
        "facts": [
            moment(written),
            translate("{count} points", count=len(ranked)),
            *(f"{count} {translate(state)}" for state, count in states.items()),
        ],
        "command": command,
        "best": best,
        "tiles": tiles(best.result, "sft" in best.artifacts) if best else [],
        "indistinct": close,
        "rivals": len(measured) - 1,
        "columns": columns,
        "rows": rows,
        "page_size": PAGE_SIZE,
        "without": unfinished,
        "limits": [limit(len(unfinished)), limit(len(unfinished), 10 * TEXT_LIMIT)],
        "text_limit": TEXT_LIMIT,
        "rivals_table": _rivals(ranked, best, metrics) if best and len(measured) > 1 else None,
        "importances": influence,
        "parallel": parallel(measured, [each.key for each in influence]) if influence else None,
        "measured": len(measured),
        "accuracies_differ": _differ(ranked),
        "curves": curves,
        "chart_data": data(curves, shared=True),
        "plotly": PLOTLY,
        "undrawn": undrawn,
        "time": _time(sweep_points, seconds),
    }
    return render_page("sweep.html", values, ("tables.js", "charts.js", "parallel.js", "page.js"))


def _accuracy(point: SweepPoint) -> float | None:
    return number(point.result.get("accuracy_grpo")) if point.state == "finished" else None


def _differ(ranked: Sequence[SweepPoint]) -> bool:
    """Return False if measuring equal models would give accuracies as different as those of the points."""
    known = [
        (share, prompts)
        for point in ranked
        if _accuracy(point) is not None
        and (share := share_of(point.result)) is not None
        and (prompts := number(point.result.get("prompts"))) is not None
        and prompts > 0
    ]
    return len(known) < 2 or differ([share for share, _ in known], [prompts for _, prompts in known])


def _rank(point: SweepPoint) -> tuple[float, int]:
    """Return a sort key: highest accuracy after GRPO, then earliest; points without a result last."""
    accuracy = _accuracy(point)
    return (1.0 if accuracy is None else -accuracy, point.number)


def limit(texts: int, most: int = TEXT_LIMIT) -> int:
    """Return the number of characters for each of `texts` values of a table, so that the page stays small."""
    return max(20, min(most, TEXT_BUDGET // max(1, texts)))


def _table(
    ranked: Sequence[SweepPoint],
    best: SweepPoint | None,
    close: Mapping[int, float | None],
    keys: Sequence[str],
    manifests: Manifests,
    seconds: Mapping[str, float],
) -> tuple[list[str], list[dict[str, Any]]]:
    """Return the columns of results, which are those that any point has, and one row per point."""
    by_point = [results(point.result) for point in ranked]
    columns = list(dict.fromkeys(column for cells in by_point for column in cells))
    most, noise = limit(len(ranked) * len(keys)), f", {translate(NOISE)}"
    rows = []
    for point, cells in zip(ranked, by_point, strict=True):
        took = [seconds[name] for name in point.artifacts.values() if name in seconds]
        total = (sum(took), duration(sum(took))) if took else NO_CELL
        report = point.artifacts.get("report")
        rows.append({
            "number": point.number,
            "report": f"../../{report}/index.html" if report in manifests else None,
            "chosen": [shorten(point.chosen.get(key, ""), most) for key in keys],
            "figures": [*(cells.get(column, NO_CELL) for column in columns), total],
            "state": f"{translate(point.state)}{noise if point.number in close else ''}",
            "finished": point.state == "finished",
            "best": point is best,
        })  # fmt: skip
    return [*columns, translate("Time of its stages")], rows


def results(evaluation: Mapping[str, Any]) -> dict[str, Cell]:
    """Return the results by column: greedy accuracy before and after and its gain; other measures after."""
    cells: dict[str, Cell] = {}
    for pair in pairs(evaluation):
        if pair.label == GREEDY:
            cells[translate("Greedy, before GRPO")] = (pair.before, percent(pair.before))
            cells[translate("Greedy, after")] = (pair.after, percent(pair.after))
            cells[translate("Gain")] = (pair.after - pair.before, gain_text(pair, evaluation))
        else:
            cells[translate(pair.label)] = (pair.after, percent(pair.after))
    return cells


def _rivals(
    ranked: Sequence[SweepPoint], best: SweepPoint, metrics: Mapping[str, Sequence[Mapping[str, Any]]]
) -> tuple[list[str], list[dict[str, Any]]]:
    """Return columns and rows that set each finished point beside the best: values, and end of training."""
    finished = [point for point in ranked if _accuracy(point) is not None][:MAX_RIVALS]
    ends = [_ends(metrics.get(point.artifacts.get("grpo", ""), [])) for point in finished]
    columns = [(key, name, share) for key, name, share in ENDS if any(key in end for end in ends)]
    most = limit(len(finished) * len(best.chosen))
    rows = []
    for point, end in zip(finished, ends, strict=True):
        accuracy, highest = _accuracy(point) or 0.0, _accuracy(best) or 0.0
        cells: list[tuple[float | None, str, str]] = [
            (accuracy, percent(accuracy), _signed(accuracy - highest, True))
        ]
        for key, _, share in columns:
            value, ours = end.get(key), ends[0].get(key)
            text = percent(value) if share else figure(value)
            apart = "" if value is None or ours is None else _signed(value - ours, share)
            cells.append((value, text, apart))
        changed = mapping(point.result.get("outcomes"))
        for name in ("fixed", "broken"):
            cells.append((number(changed.get(name)), figure(changed.get(name)), ""))
        differing = {key: point.chosen.get(key, "–") for key in best.chosen}
        told = [f"{key}={value}" for key, value in differing.items() if value != best.chosen[key]]
        rows.append({
            "number": point.number,
            "best": point is best,
            "differs": shorten(" ".join(told), most),
            "cells": [(value, text, "" if point is best else apart) for value, text, apart in cells],
        })  # fmt: skip
    heads = [translate("Greedy, after"), *(translate(name) for _, name, _ in columns)]
    return [*heads, translate("fixed"), translate("broken")], rows


def _ends(rows: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Return the mean of each metric of ENDS over the last tenth of the steps."""
    ends = {}
    for key, _, _ in ENDS:
        values = [value for _, value in points(rows, key)]
        last = values[-max(1, round(LAST_SHARE * len(values))) :]
        if last:
            ends[key] = sum(last) / len(last)
    return ends


def _signed(value: float, share: bool) -> str:
    """Return a difference with its sign; of shares in percentage points."""
    text = f"{100 * value:.1f}" if share else figure(value)
    return text.replace("-", "−") if value < 0 else f"+{text}"


def _curves(
    ranked: Sequence[SweepPoint], metrics: Mapping[str, Sequence[Mapping[str, Any]]]
) -> tuple[list[Chart], int]:
    """Return the charts and the number of runs left out; the best runs are coloured, others faint."""
    sharing: dict[str, list[SweepPoint]] = {}
    for point in ranked:
        if metrics.get(artifact := point.artifacts.get("grpo", "")):
            sharing.setdefault(artifact, []).append(point)
    trained = list(sharing)
    coloured, faint = trained[:MAX_NAMED], trained[MAX_NAMED : MAX_NAMED + MAX_FAINT]
    rows = {_label(sharing[artifact]): metrics[artifact] for artifact in coloured}
    drawn = overlaid(rows, [metrics[artifact] for artifact in faint], MAX_SWEPT)
    return drawn, len(trained) - len(coloured) - len(faint)


def _label(sharing: Sequence[SweepPoint]) -> str:
    """Return `2: seed=1`, or `0, 3: seed=1` with the common values of the points that share a training."""
    ordered = sorted(sharing, key=lambda point: point.number)
    common = [
        f"{key}={value}"
        for key, value in ordered[0].chosen.items()
        if all(point.chosen.get(key) == value for point in ordered)
    ]
    more = f" {translate('and {count} more', count=len(ordered) - 8)}" if len(ordered) > 8 else ""
    numbers = ", ".join(str(point.number) for point in ordered[:8]) + more
    return shorten(f"{numbers}: {' '.join(common)}".rstrip(": "), 100)


def _time(sweep_points: Sequence[SweepPoint], seconds: Mapping[str, float]) -> tuple[float, float] | None:
    """Return the seconds of all stages, and those that sharing saved; None if unknown."""
    uses = Counter(artifact for point in sweep_points for artifact in point.artifacts.values())
    timed = [(seconds[name], count) for name, count in uses.items() if name in seconds]
    total = sum(each for each, _ in timed)
    return (total, sum(each * count for each, count in timed) - total) if timed else None


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
            {"name": shorten(key, TEXT_LIMIT), "values": [_short(neutral(value)) or "–" for value in each]}
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
