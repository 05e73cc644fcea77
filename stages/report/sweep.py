"""The page of a sweep: the best point, all points in a table, their curves, and the influence of each key."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from stages.report.artifacts import mapping, points
from stages.report.charts import MAX_SWEPT, PLOTLY, Chart, data, overlaid
from stages.report.details import spans
from stages.report.headline import GREEDY, NOISE, differ, gain_text, indistinct, pairs, share_of, tiles
from stages.report.importance import Measured, importances, may_influence, parallel
from stages.report.language import translate
from stages.report.page import render_page
from stages.report.text import duration, figure, moment, number, percent, shorten

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
SIGNS = (
    ("completion_cut_share", 0.1, "more of its completions are cut"),
    ("zero_variance_share", 0.15, "more of its groups give no gradient"),
)
"""(metric, by how much it exceeds the best point's, what that means): shares of 1."""
COLLAPSED, LEFT = 0.1, 3.0
"""An entropy below this part of the best point's, and a KL above this multiple, explain a lower reward."""
MAX_RIVALS = 200
"""Points that the page sets beside the best one: those with the highest accuracies."""


@dataclass(frozen=True)
class SweepPoint:
    """One point, as the page needs it."""

    number: int
    state: str
    """finished, failed, stopped early, invalid or pending."""
    message: str
    chosen: Mapping[str, str]
    """Key -> value, of the keys that differ between points."""
    command: str
    result: Mapping[str, Any]
    """evaluate's result.json; {} without one."""
    artifacts: Mapping[str, str]
    """Stage -> artifact; equal artifacts are shared."""
    rung: Mapping[str, Any] | None = None
    """Where it was stopped early: number, step, accuracy, needed, compared; None if it was not."""

    @property
    def overrides(self) -> str:
        """The keys that differ between points, as overrides."""
        return " ".join(f"{key}={value}" for key, value in self.chosen.items())

    @property
    def reason(self) -> str:
        """Why it has no result, in the language of the page where it was stopped early."""
        if self.rung is None:
            return self.message
        shares = {key: percent(self.rung[key]) for key in ("accuracy", "needed")}
        return translate(
            "rung {number}, after step {step}: accuracy {accuracy}, {needed} needed ({compared} trainings)",
            **{**self.rung, **shares},
        )


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
        metrics: artifact of grpo -> rows of its metrics.jsonl, also of trainings that were stopped early.
    """
    ranked = sorted(sweep_points, key=_rank)
    best = ranked[0] if ranked and _accuracy(ranked[0]) is not None else None
    keys = list(dict.fromkeys(key for point in sweep_points for key in point.chosen))
    seconds = {span.stage: span.ended - span.started for span in spans(manifests, None)}
    close = indistinct([(point.number, point.result) for point in ranked if _accuracy(point) is not None])
    table = _table(ranked, best, close, keys, manifests, seconds)
    curves, undrawn = _curves(ranked, metrics)
    measured = [
        Measured(point.number, point.chosen, accuracy, point.artifacts.get("evaluate", ""))
        for point in ranked
        if (accuracy := _accuracy(point)) is not None
    ]
    varying = [key for key in keys if may_influence(key)]
    influence = importances(measured, varying)
    without = [point for point in sweep_points if point.state != "finished"]
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
        "table": table,
        "page_size": PAGE_SIZE,
        "without": without,
        "stopped": any(point.rung is not None for point in without),
        "limits": [limit(len(without)), limit(len(without), 10 * TEXT_LIMIT)],
        "text_limit": TEXT_LIMIT,
        "rivals_table": _rivals(ranked, best, close, metrics) if best and len(measured) > 1 else None,
        "importances": influence,
        "none_varies": len(measured) > 1 and not varying,
        "explains": any(each.is_known and each.eta_squared > each.by_chance for each in influence),
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


@dataclass(frozen=True)
class PointTable:
    """The table of all points."""

    greedy: list[str]
    """Columns before those of the keys that differ."""
    further: list[str]
    """Columns after them."""
    rows: list[dict[str, Any]]


def _table(
    ranked: Sequence[SweepPoint],
    best: SweepPoint | None,
    close: Mapping[int, float | None],
    keys: Sequence[str],
    manifests: Manifests,
    seconds: Mapping[str, float],
) -> PointTable:
    """Return one row per point; the columns of results are those that any point has."""
    by_point = [results(point.result) for point in ranked]
    columns = list(dict.fromkeys(column for cells in by_point for column in cells))
    greedy = [column for column in columns if column in greedy_columns()]
    further = [column for column in columns if column not in greedy]
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
            "greedy": [cells.get(column, NO_CELL) for column in greedy],
            "further": [*(cells.get(column, NO_CELL) for column in further), total],
            "state": f"{translate(point.state)}{noise if point.number in close else ''}",
            "finished": point.state == "finished",
            "best": point is best,
        })  # fmt: skip
    return PointTable(greedy, [*further, translate("Time of its stages")], rows)


def greedy_columns() -> list[str]:
    """Return the columns of the greedy accuracies, which a table shows first: a phone shows no others."""
    return [translate(name) for name in ("Greedy, before GRPO", "Greedy, after", "Gain")]


def results(evaluation: Mapping[str, Any]) -> dict[str, Cell]:
    """Return the results by column: greedy accuracy before and after and its gain; other measures after."""
    cells: dict[str, Cell] = {}
    before, after, gain = greedy_columns()
    for pair in pairs(evaluation):
        if pair.label == GREEDY:
            cells[before] = (pair.before, percent(pair.before))
            cells[after] = (pair.after, percent(pair.after))
            cells[gain] = (pair.after - pair.before, gain_text(pair, evaluation))
        else:
            cells[translate(pair.label)] = (pair.after, percent(pair.after))
    return cells


def _rivals(
    ranked: Sequence[SweepPoint],
    best: SweepPoint,
    close: Collection[int],
    metrics: Mapping[str, Sequence[Mapping[str, Any]]],
) -> tuple[list[str], list[dict[str, Any]]]:
    """Return columns and rows that set each finished point beside the best: values, and end of training.

    `close`: numbers of the points whose accuracy cannot be told from the best one's.
    """
    finished = [point for point in ranked if _accuracy(point) is not None][:MAX_RIVALS]
    ends = [_ends(metrics.get(point.artifacts.get("grpo", ""), [])) for point in finished]
    columns = [(key, name, share) for key, name, share in ENDS if any(key in end for end in ends)]
    changes = [mapping(point.result.get("outcomes")) for point in finished]
    outcomes = [name for name in ("fixed", "broken") if any(name in changed for changed in changes)]
    most = limit(len(finished) * len(best.chosen))
    rows = []
    for point, end, changed in zip(finished, ends, changes, strict=True):
        accuracy, highest = _accuracy(point) or 0.0, _accuracy(best) or 0.0
        cells: list[tuple[float | None, str, str]] = [
            (accuracy, percent(accuracy), _signed(accuracy - highest, True))
        ]
        for key, _, share in columns:
            value, ours = end.get(key), ends[0].get(key)
            text = percent(value) if share else figure(value)
            apart = "" if value is None or ours is None else _signed(value - ours, share)
            cells.append((value, text, apart))
        cells += [(number(changed.get(name)), figure(changed.get(name)), "") for name in outcomes]
        differing = {key: point.chosen.get(key, "–") for key in best.chosen}
        told = [f"{key}={value}" for key, value in differing.items() if value != best.chosen[key]]
        rows.append({
            "number": point.number,
            "best": point is best,
            "differs": shorten(" ".join(told), most),
            "cause": "" if point is best else _cause(end, ends[0], point.number in close),
            "cells": [(value, text, "" if point is best else apart) for value, text, apart in cells],
        })  # fmt: skip
    ends_of = [translate("{measure}, last tenth", measure=translate(name)) for _, name, _ in columns]
    return [translate("Greedy, after"), *ends_of, *map(translate, outcomes)], rows


def _ends(rows: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Return the mean of each metric of ENDS over the last tenth of the steps."""
    ends = {}
    for key, _, _ in ENDS:
        values = [value for _, value in points(rows, key)]
        last = values[-max(1, round(LAST_SHARE * len(values))) :]
        if last:
            ends[key] = sum(last) / len(last)
    return ends


def _cause(end: Mapping[str, float], best: Mapping[str, float], is_close: bool) -> str:
    """Return what at the end of a training may explain its lower accuracy: a hint, not a proof."""
    if is_close:
        return translate("nothing to explain: within noise")
    if not end or not best:
        return translate("unknown: it has no metrics")

    def has(key: str) -> bool:
        return key in end and key in best

    signs = [text for key, least, text in SIGNS if has(key) and end[key] - best[key] >= least]
    if has("entropy") and end["entropy"] < COLLAPSED * best["entropy"]:
        signs.append("its sampling no longer explores (entropy)")
    lower = has("reward") and end["reward"] < best["reward"]
    if lower and has("kl") and end["kl"] > LEFT * best["kl"] > 0:
        signs.append("it left the start (KL) and earned less")
    if not signs:
        same = "its reward is as high as the best point's: training does not explain it"
        signs = ["its reward stayed lower, and nothing else stands out" if lower else same]
    return "; ".join(translate(sign) for sign in signs)


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
