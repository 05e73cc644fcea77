"""The page that compares runs: what differs between them, their results, and their curves in the same charts.

Runs are named by the values that differ, because that is what a reader compares.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from stages.report.charts import MAX_SERIES, PLOTLY, data, overlaid, style_of
from stages.report.details import value_rows
from stages.report.headline import lags, share_of
from stages.report.language import translate
from stages.report.page import render_page
from stages.report.sweep import NO_CELL, TEXT_LIMIT, Cell, greedy_columns, limit, results
from stages.report.text import shorten

MAX_RUNS = MAX_SERIES
"""Each run has a line of its own colour and dash."""
MAX_NAMED = 3
"""Differing values in the name of a run."""


@dataclass(frozen=True)
class ComparedRun:
    """One run, as the page needs it."""

    label: str
    state: str
    """running, finished, failed, …"""
    failed_stage: str
    """Stage that failed; empty if none has."""
    started: float
    """Unix time."""
    duration: str
    command: str
    result: Mapping[str, Any]
    """evaluate's result.json; {} without one."""
    report: str
    """URL of its report; empty without one."""
    config: Mapping[str, Any]
    metrics: Sequence[Mapping[str, Any]]


def render(runs: Sequence[ComparedRun]) -> str:
    """Return the page as HTML, for at most MAX_RUNS runs."""
    cells = [results(run.result) for run in runs]
    columns = list(dict.fromkeys(column for row in cells for column in row))
    greedy = [column for column in columns if column in greedy_columns()]
    further = [column for column in columns if column not in greedy]
    highest = _highest(cells, further)
    against = _against(runs)
    differing = differences([run.config for run in runs])
    names = labels(runs, differing)
    curves = overlaid({name: run.metrics for name, run in zip(names, runs, strict=True)})
    values = {
        "names": names,
        "styles": [style_of(i) for i in range(len(runs))],
        "greedy": greedy,
        "further": further,
        "comparisons": sum(text != "" for _, text in against) - 1,
        "rows": [
            {
                "run": run,
                "name": name,
                "label": shorten(run.label, 100),
                "state": _outcome(run),
                "greedy": _marked(row, greedy, highest),
                "against": behind,
                "further": _marked(row, further, highest),
            }
            for run, name, row, behind in zip(runs, names, cells, against, strict=True)
        ],
        "plotly": PLOTLY,
        "curves": curves,
        "chart_data": data(curves, shared=True),
        "differences": differing,
        "text_limit": 10 * TEXT_LIMIT,
    }
    return render_page("compare.html", values, ("tables.js", "charts.js", "page.js"))


def _highest(cells: Sequence[Mapping[str, Cell]], further: Sequence[str]) -> dict[str, float]:
    """Return the highest value of each column that measures accuracy after GRPO, if runs differ in it."""
    _, after, gain = greedy_columns()
    highest = {}
    for column in (after, gain, *(name for name in further if "@" in name)):
        values = [value for row in cells if (value := row.get(column, NO_CELL)[0]) is not None]
        if len(values) > 1 and min(values) < max(values):
            highest[column] = max(values)
    return highest


def _marked(
    row: Mapping[str, Cell], columns: Sequence[str], highest: Mapping[str, float]
) -> list[tuple[float | None, str, bool]]:
    """Return the cells of a run, each with whether it is the highest of its column."""
    cells = ((column, *row.get(column, NO_CELL)) for column in columns)
    return [(value, text, column in highest and value == highest[column]) for column, value, text in cells]


def _against(runs: Sequence[ComparedRun]) -> list[Cell]:
    """Return by how much each run is behind the one with the highest greedy accuracy after GRPO.

    Empty for runs without an accuracy, and for all of them if fewer than two have one.
    """
    known = [(i, share) for i, run in enumerate(runs) if (share := share_of(run.result)) is not None]
    if len(known) < 2:
        return [NO_CELL] * len(runs)
    ranked = sorted(known, key=lambda each: -each[1])
    behind = lags([(i, runs[i].result) for i, _ in ranked])
    cells = {i: (-lag.difference, lag.text) for i, lag in behind.items()}
    cells[ranked[0][0]] = (0.0, translate("best"))
    return [cells.get(i, NO_CELL) for i in range(len(runs))]


def _outcome(run: ComparedRun) -> str:
    state = translate(run.state)
    return translate("{state} in {stage}", state=state, stage=run.failed_stage) if run.failed_stage else state


def labels(runs: Sequence[ComparedRun], differing: Sequence[Sequence[str]]) -> list[str]:
    """Return a name for each run: its differing values if there are few, else its id or name.

    `differing`: key and the value of each run, as `differences` returns them.
    """
    told = [row for row in differing if len(row[0]) < 60][:MAX_NAMED]
    names = []
    for i, run in enumerate(runs):
        values = " ".join(f"{key.rpartition('.')[2]}={shorten(row[i], 24)}" for key, *row in told)
        names.append(shorten(values if told and len(differing) <= MAX_NAMED else run.label, 100))
    if len(set(names)) < len(names):  # runs whose values are equal
        names = [shorten(f"{name} · {run.label}", 100) for name, run in zip(names, runs, strict=True)]
    return names


def differences(configs: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    """Return [key, value in each configuration] of every key that differs; – where a key is missing."""
    flattened = [dict(value_rows(config)) for config in configs]
    keys = dict.fromkeys(key for values in flattened for key in values)
    rows = [[key, *(values.get(key, "–") for values in flattened)] for key in keys]
    differing = [row for row in rows if len(set(row[1:])) > 1]
    most = limit(len(differing) * len(configs))
    return [[shorten(text, most) for text in row] for row in differing]
