"""The page of a sweep: the best point, all points in a table, and their curves overlaid."""

import base64
import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from stages.report.curves import GRPO, Drawing, Spec, overlay, points
from stages.report.figures import MAX_LINES
from stages.report.headline import GREEDY, pairs, tiles
from stages.report.importance import Measured, importances, parallel
from stages.report.templates import file_content, render_page
from stages.report.text import duration, moment, number, percent, shorten

OVERLAID = (
    Spec("Reward", ("reward",), "Weighted sum of the reward functions, mean over the step's completions."),
    Spec("Accuracy while sampling", ("accuracy",), "Share of completions that are right.", share=True),
    Spec("Accuracy on held-out prompts", ("validation_accuracy",), "Greedy, while training.", share=True),
    *(spec for spec in GRPO if spec.title in ("KL to the reference", "Entropy")),
    Spec("Completion length", ("completion_length",), "Tokens, mean over the step."),
)
MAX_FAINT = 30
"""Lines without a colour and a label."""
MAX_ROWS = 5000
PAGE_SIZE = 50
"""Rows of a table that are visible at first; further ones are text that tables.js parses."""
TEXT_LIMIT, TEXT_BUDGET = 300, 100_000
"""Characters of one value, and of all values of one table; of a message ten times as many."""
Manifests = Mapping[str, Mapping[str, Any]]
Cell = tuple[float | None, str]
"""The value to sort by, and its text."""
NO_CELL: Cell = (None, "")


@dataclass(frozen=True)
class SweepPoint:
    """One point, as the page needs it."""

    number: int
    state: str
    """finished, failed, invalid or pending."""
    message: str
    """Reason why it has no result."""
    chosen: Mapping[str, str]
    """Key -> value, of the keys that differ between points."""
    command: str
    """The command line that reproduces it."""
    result: Mapping[str, Any]
    """evaluate's result.json; {} without one."""
    artifacts: Mapping[str, str]
    """Stage -> artifact; equal artifacts are shared."""


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
    columns, rows = _table(ranked[:MAX_ROWS], best, keys, manifests)
    curves, undrawn = _curves(ranked, metrics)
    measured = [
        Measured(point.number, point.chosen, accuracy)
        for point in ranked
        if (accuracy := _accuracy(point)) is not None
    ]
    influence = importances(measured, keys)
    script = file_content("tables.js")
    unfinished = [point for point in sweep_points if point.state != "finished"]
    states = Counter(point.state for point in sweep_points)
    values = {
        "title": title,
        "keys": [shorten(key, TEXT_LIMIT) for key in keys],
        "facts": [moment(written), f"{len(ranked)} points", *(f"{n} {state}" for state, n in states.items())],
        "command": command,
        "best": best,
        "best_chosen": _describe(best.chosen) if best else "",
        "tiles": tiles(best.result, "sft" in best.artifacts) if best else [],
        "columns": columns,
        "rows": rows,
        "unlisted": len(ranked) - len(rows),
        "page_size": PAGE_SIZE,
        "without": _without(unfinished[:MAX_ROWS]),
        "unlisted_without": len(unfinished) - MAX_ROWS,
        "importances": [(shorten(each.key, TEXT_LIMIT), each) for each in influence],
        "parallel": parallel(measured, [each.key for each in influence]) if influence else None,
        "measured": len(measured),
        "curves": curves,
        "undrawn": undrawn,
        "time": _time(sweep_points, manifests),
        "script": script,
        # The Content-Security-Policy allows this script and no other.
        "script_digest": base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
    }
    return render_page("sweep.html", values)


def _accuracy(point: SweepPoint) -> float | None:
    return number(point.result.get("accuracy_grpo")) if point.state == "finished" else None


def _rank(point: SweepPoint) -> tuple[float, int]:
    """Return a sort key: highest accuracy after GRPO, then earliest; points without a result last."""
    accuracy = _accuracy(point)
    return (1.0 if accuracy is None else -accuracy, point.number)


def _describe(chosen: Mapping[str, str], limit: int = TEXT_LIMIT) -> str:
    return shorten(" ".join(f"{key}={value}" for key, value in chosen.items()), limit)


def limit(texts: int, most: int = TEXT_LIMIT) -> int:
    """Return the number of characters for each of `texts` values of a table, so that the page stays small."""
    return max(20, min(most, TEXT_BUDGET // max(1, texts)))


def _without(unfinished: Sequence[SweepPoint]) -> list[dict[str, Any]]:
    """Return number, varied keys, state and reason of points without a result."""
    short, long = limit(len(unfinished)), limit(len(unfinished), 10 * TEXT_LIMIT)
    return [
        {
            "number": point.number,
            "chosen": _describe(point.chosen, short),
            "state": point.state,
            "message": shorten(point.message, long),
        }
        for point in unfinished
    ]


def _table(
    ranked: Sequence[SweepPoint], best: SweepPoint | None, keys: Sequence[str], manifests: Manifests
) -> tuple[list[str], list[dict[str, Any]]]:
    """Return the columns of results, which are those that any point has, and one row per point."""
    by_point = [results(point.result) for point in ranked]
    columns = list(dict.fromkeys(column for cells in by_point for column in cells))
    most = limit(len(ranked) * len(keys))
    rows = []
    for point, cells in zip(ranked, by_point, strict=True):
        seconds = [s for name in point.artifacts.values() if (s := _seconds(manifests.get(name))) is not None]
        total = (sum(seconds), duration(sum(seconds))) if seconds else NO_CELL
        report = point.artifacts.get("report")
        rows.append({
            "number": point.number,
            "report": f"../../{report}/index.html" if report in manifests else None,
            "chosen": [shorten(point.chosen.get(key, ""), most) for key in keys],
            "figures": [*(cells.get(column, NO_CELL) for column in columns), total],
            "state": point.state,
            "best": point is best,
        })  # fmt: skip
    return [*columns, "Time of its stages"], rows


def results(evaluation: Mapping[str, Any]) -> dict[str, Cell]:
    """Return the results by column: greedy accuracy before and after and its gain; other measures after."""
    cells: dict[str, Cell] = {}
    for pair in pairs(evaluation):
        if pair.label == GREEDY:
            cells["Greedy, before GRPO"] = (pair.before, percent(pair.before))
            cells["Greedy, after"] = (pair.after, percent(pair.after))
            cells["Gain"] = (pair.after - pair.before, pair.gain)
        else:
            cells[pair.label] = (pair.after, percent(pair.after))
    return cells


def _curves(
    ranked: Sequence[SweepPoint], metrics: Mapping[str, Sequence[Mapping[str, Any]]]
) -> tuple[list[Drawing], int]:
    """Return the figures and the number of runs left out; the best runs are coloured, others faint."""
    sharing: dict[str, list[SweepPoint]] = {}
    for point in ranked:
        if metrics.get(artifact := point.artifacts.get("grpo", "")):
            sharing.setdefault(artifact, []).append(point)
    trained = list(sharing)
    coloured, faint = trained[:MAX_LINES], trained[MAX_LINES : MAX_LINES + MAX_FAINT]
    rows = {_label(sharing[artifact]): metrics[artifact] for artifact in coloured}
    drawings = overlay_all(rows, [metrics[artifact] for artifact in faint])
    return drawings, len(trained) - len(coloured) - len(faint)


def overlay_all(
    coloured: Mapping[str, Sequence[Mapping[str, Any]]], faint: Sequence[Sequence[Mapping[str, Any]]]
) -> list[Drawing]:
    """Draw each metric of OVERLAID that a coloured run has.

    Args:
        coloured: label -> rows of metrics.jsonl of a run.
        faint: the same of runs without a label.
    """
    drawings = []
    for spec in OVERLAID:
        key = spec.keys[0]
        series = {label: points(rows, key) for label, rows in coloured.items()}
        further = [curve for rows in faint if (curve := points(rows, key))]
        if any(series.values()):
            drawings.append(overlay(spec, series, further))
    return drawings


def _label(sharing: Sequence[SweepPoint]) -> str:
    """Return `2: seed=1`, or `0, 3: seed=1` with the common values of the points that share a training."""
    ordered = sorted(sharing, key=lambda point: point.number)
    common = {
        key: value
        for key, value in ordered[0].chosen.items()
        if all(point.chosen.get(key) == value for point in ordered)
    }
    more = f" and {len(ordered) - 8} more" if len(ordered) > 8 else ""
    numbers = ", ".join(str(point.number) for point in ordered[:8]) + more
    return shorten(f"{numbers}: {_describe(common)}".rstrip(": "), 100)


def _seconds(manifest: Mapping[str, Any] | None) -> float | None:
    """Return the duration of the stage; None if it is unknown."""
    start, end = (number((manifest or {}).get(key)) for key in ("started", "ended"))
    return None if start is None or end is None or end < start else end - start


def _time(sweep_points: Sequence[SweepPoint], manifests: Manifests) -> tuple[float, float] | None:
    """Return the seconds of all stages, and those that sharing saved; None if unknown."""
    uses = Counter(artifact for point in sweep_points for artifact in point.artifacts.values())
    durations = {name: seconds for name in uses if (seconds := _seconds(manifests.get(name))) is not None}
    separate = sum(seconds * uses[name] for name, seconds in durations.items())
    return (sum(durations.values()), separate - sum(durations.values())) if durations else None
