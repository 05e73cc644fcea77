"""The page of a sweep: the best point, all points in a table, and their curves overlaid."""

import base64
import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from stages.report import svg
from stages.report.curves import GRPO, Drawing, Spec, overlay, points
from stages.report.headline import GREEDY, Pair, pairs, tiles
from stages.report.templates import environment, file_content
from stages.report.text import duration, moment, number, percent, shorten

OVERLAID = (
    Spec("Reward", ("reward",), "Weighted sum of the reward functions, mean over the step's completions."),
    Spec("Accuracy while sampling", ("accuracy",), "Share of completions that are right.", share=True),
    Spec("Accuracy on held-out prompts", ("validation_accuracy",), "Greedy, while training.", share=True),
    *(spec for spec in GRPO if spec.title in ("KL to the reference", "Entropy")),
    Spec("Completion length", ("completion_length",), "Tokens, mean over the step."),
)
MAX_FAINT = 30
"""Lines beside those with a colour of their own."""
MAX_ROWS = 5000
PAGE_SIZE = 50
"""Rows of a table that stand there when the page opens; further ones wait as text (tables.js)."""
TEXT_LIMIT = 300
"""Characters of a value; of a message ten times as many."""
TEXT_BUDGET = 100_000
"""Characters of all values of one table, which share it."""


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


@dataclass(frozen=True)
class Row:
    """One row of the table of points."""

    number: int
    report: str | None
    """Relative address of the point's own report."""
    chosen: tuple[str, ...]
    figures: tuple[tuple[float | None, str], ...]
    """(value to sort by, text) per result."""
    state: str
    best: bool


def render(
    title: str,
    command: str,
    written: float,
    given: Sequence[SweepPoint],
    manifests: Mapping[str, Mapping[str, Any]],
    metrics: Mapping[str, Sequence[Mapping[str, Any]]],
) -> str:
    """Return the complete page as text."""
    ranked = sorted(given, key=_rank)
    best = ranked[0] if ranked and _accuracy(ranked[0]) is not None else None
    keys = list(dict.fromkeys(key for point in given for key in point.chosen))
    columns, rows = _table(ranked[:MAX_ROWS], best, keys, manifests)
    users = _users(given)
    curves, undrawn = _curves(ranked, users, metrics)
    script = file_content("tables.js")
    unfinished = [point for point in given if point.state != "finished"]
    values = {
        "title": title,
        "keys": [shorten(key, TEXT_LIMIT) for key in keys],
        "facts": [moment(written), *_counts(given)],
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
        "curves": curves,
        "undrawn": undrawn,
        "time": _time(users, manifests),
        "style": file_content("style.css"),
        "script": script,
        # The policy lets this one script run and no other, whatever text might slip through.
        "script_digest": base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
    }
    return environment().get_template("sweep.html").render(values)


def _accuracy(point: SweepPoint) -> float | None:
    return number(point.result.get("accuracy_grpo")) if point.state == "finished" else None


def _rank(point: SweepPoint) -> tuple[float, int]:
    """Return a sort key: highest accuracy after GRPO, then earliest; points without a result last."""
    accuracy = _accuracy(point)
    return (1.0 if accuracy is None else -accuracy, point.number)


def _counts(given: Sequence[SweepPoint]) -> list[str]:
    counted = Counter(point.state for point in given)
    return [f"{len(given)} points", *(f"{count} {state}" for state, count in counted.items())]


def _describe(chosen: Mapping[str, str], limit: int = TEXT_LIMIT) -> str:
    return shorten(" ".join(f"{key}={value}" for key, value in chosen.items()), limit)


def _limit(texts: int, most: int = TEXT_LIMIT) -> int:
    """Characters of each of `texts` values of a table, so that the page stays small."""
    return max(20, min(most, TEXT_BUDGET // max(1, texts)))


def _without(given: Sequence[SweepPoint]) -> list[dict[str, Any]]:
    """Return number, varied keys, state and reason of points without a result."""
    short, long = _limit(len(given)), _limit(len(given), 10 * TEXT_LIMIT)
    return [
        {
            "number": point.number,
            "told": _describe(point.chosen, short),
            "state": point.state,
            "message": shorten(point.message, long),
        }
        for point in given
    ]


def _table(
    ranked: Sequence[SweepPoint],
    best: SweepPoint | None,
    keys: Sequence[str],
    manifests: Mapping[str, Mapping[str, Any]],
) -> tuple[list[str], list[Row]]:
    """Columns of results and one row per point; the columns are those that any point has."""
    measured = {point.number: {pair.label: pair for pair in pairs(point.result)} for point in ranked}
    labels = list(dict.fromkeys(label for measures in measured.values() for label in measures))
    columns = [
        name
        for label in labels
        for name in ([label] if label != GREEDY else ["Greedy, before GRPO", "Greedy, after", "Gain"])
    ]
    limit = _limit(len(ranked) * len(keys))
    rows = []
    for point in ranked:
        figures = [cell for label in labels for cell in _cells(label, measured[point.number].get(label))]
        seconds = [_seconds(manifests.get(artifact)) for artifact in point.artifacts.values()]
        known = [value for value in seconds if value is not None]
        figures.append((sum(known), duration(sum(known))) if known else (None, ""))
        report = point.artifacts.get("report")
        rows.append(
            Row(
                point.number,
                f"../../{report}/index.html" if report in manifests else None,
                tuple(shorten(point.chosen.get(key, ""), limit) for key in keys),
                tuple(figures),
                point.state,
                point is best,
            )
        )
    return [*columns, "Time of its stages"], rows


def _cells(label: str, pair: Pair | None) -> list[tuple[float | None, str]]:
    """Greedy accuracy before, after and their difference; of other measures, the one after."""
    if pair is None:
        return [(None, "")] * (3 if label == GREEDY else 1)
    after = (pair.after, percent(pair.after))
    if label != GREEDY:
        return [after]
    return [(pair.before, percent(pair.before)), after, (pair.after - pair.before, pair.gain)]


def _users(given: Sequence[SweepPoint]) -> dict[str, list[SweepPoint]]:
    """Artifact -> the points that it belongs to, in the order of stages and points."""
    users: dict[str, list[SweepPoint]] = {}
    for point in given:
        for artifact in point.artifacts.values():
            users.setdefault(artifact, []).append(point)
    return users


def _curves(
    ranked: Sequence[SweepPoint],
    users: Mapping[str, Sequence[SweepPoint]],
    metrics: Mapping[str, Sequence[Mapping[str, Any]]],
) -> tuple[list[Drawing], int]:
    """Return the figures and the number of runs left out; the best runs are coloured, others faint."""
    trained = list(dict.fromkeys(point.artifacts.get("grpo", "") for point in ranked))
    trained = [artifact for artifact in trained if metrics.get(artifact)]
    labels = {artifact: _label(users[artifact]) for artifact in trained}
    coloured = trained[: len(svg.COLOURS)]
    unranked = trained[len(coloured) :][:MAX_FAINT]
    drawings = []
    for i, spec in enumerate(OVERLAID):
        series = {labels[artifact]: points(metrics[artifact], spec.keys[0]) for artifact in coloured}
        faint = [curve for artifact in unranked if (curve := points(metrics[artifact], spec.keys[0]))]
        if any(series.values()):
            drawings.append(overlay(spec, series, faint, f"s{i}"))
    return drawings, len(trained) - len(coloured) - len(unranked)


def _label(sharing: Sequence[SweepPoint]) -> str:
    """`2: seed=1`, or `0, 3: seed=1` with what those that share a run have in common."""
    common = {
        key: value
        for key, value in sharing[0].chosen.items()
        if all(point.chosen.get(key) == value for point in sharing)
    }
    return shorten(f"{_numbers(sharing)}: {_describe(common)}".rstrip(": "), 100)


def _numbers(sharing: Sequence[SweepPoint]) -> str:
    more = f" and {len(sharing) - 8} more" if len(sharing) > 8 else ""
    return ", ".join(str(point.number) for point in sharing[:8]) + more


def _seconds(manifest: Mapping[str, Any] | None) -> float | None:
    """Return the duration of the stage; None if it is unknown."""
    start, end = (number((manifest or {}).get(key)) for key in ("started", "ended"))
    return None if start is None or end is None or end < start else end - start


def _time(
    users: Mapping[str, Sequence[SweepPoint]], manifests: Mapping[str, Mapping[str, Any]]
) -> tuple[float, float] | None:
    """Seconds that all stages took, and how many more if each point had run alone; None: nobody knows."""
    durations = {name: seconds for name in users if (seconds := _seconds(manifests.get(name))) is not None}
    separate = sum(seconds * len(users[name]) for name, seconds in durations.items())
    return (sum(durations.values()), separate - sum(durations.values())) if durations else None
