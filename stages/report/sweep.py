"""The page of a sweep: the best point, all points in a table, and their curves overlaid."""

import base64
import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from stages.report.curves import MAX_LINES, Drawing, overlay_all
from stages.report.headline import GREEDY, NOISE, gain_text, indistinct, pairs, share_of, tiles
from stages.report.importance import Measured, importances, parallel
from stages.report.intervals import differ
from stages.report.templates import file_content, render_page
from stages.report.text import duration, moment, number, percent, shorten
from stages.report.timeline import spans

MAX_FAINT = 30
"""Lines without a colour and a label."""
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
    script = file_content("tables.js")
    unfinished = [point for point in sweep_points if point.state != "finished"]
    states = Counter(point.state for point in sweep_points)
    values = {
        "title": title,
        "keys": [shorten(key, TEXT_LIMIT) for key in keys],
        "facts": [moment(written), f"{len(ranked)} points", *(f"{n} {state}" for state, n in states.items())],
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
        "importances": influence,
        "parallel": parallel(measured, [each.key for each in influence]) if influence else None,
        "measured": len(measured),
        "accuracies_differ": _differ(ranked),
        "curves": curves,
        "undrawn": undrawn,
        "time": _time(sweep_points, seconds),
        "script": script,
        # The Content-Security-Policy allows this script and no other.
        "script_digest": base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
    }
    return render_page("sweep.html", values)


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
    most = limit(len(ranked) * len(keys))
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
            "state": f"finished, {NOISE}" if point.number in close else point.state,
            "finished": point.state == "finished",
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
            cells["Gain"] = (pair.after - pair.before, gain_text(pair, evaluation))
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


def _label(sharing: Sequence[SweepPoint]) -> str:
    """Return `2: seed=1`, or `0, 3: seed=1` with the common values of the points that share a training."""
    ordered = sorted(sharing, key=lambda point: point.number)
    common = [
        f"{key}={value}"
        for key, value in ordered[0].chosen.items()
        if all(point.chosen.get(key) == value for point in ordered)
    ]
    more = f" and {len(ordered) - 8} more" if len(ordered) > 8 else ""
    numbers = ", ".join(str(point.number) for point in ordered[:8]) + more
    return shorten(f"{numbers}: {' '.join(common)}".rstrip(": "), 100)


def _time(sweep_points: Sequence[SweepPoint], seconds: Mapping[str, float]) -> tuple[float, float] | None:
    """Return the seconds of all stages, and those that sharing saved; None if unknown."""
    uses = Counter(artifact for point in sweep_points for artifact in point.artifacts.values())
    timed = [(seconds[name], count) for name, count in uses.items() if name in seconds]
    total = sum(each for each, _ in timed)
    return (total, sum(each * count for each, count in timed) - total) if timed else None
