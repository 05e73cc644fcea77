"""The page that compares runs: results, curves in the same figures, and configuration values that differ."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from stages.report.curves import MAX_LINES, overlay_all
from stages.report.details import value_rows
from stages.report.page import render_page
from stages.report.sweep import NO_CELL, TEXT_LIMIT, limit, results
from stages.report.text import shorten

MAX_RUNS = MAX_LINES
"""Each run has a colour."""


@dataclass(frozen=True)
class ComparedRun:
    """One run, as the page needs it."""

    label: str
    state: str
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
    labels = [shorten(run.label, 100) for run in runs]
    values = {
        "labels": labels,
        "columns": columns,
        "rows": [
            {
                "run": run,
                "label": label,
                "figures": [row.get(column, NO_CELL)[1] for column in columns],
            }
            for run, label, row in zip(runs, labels, cells, strict=True)
        ],
        "curves": overlay_all({label: run.metrics for label, run in zip(labels, runs, strict=True)}, []),
        "differences": differences([run.config for run in runs]),
        "text_limit": 10 * TEXT_LIMIT,
    }
    return render_page("compare.html", values)


def differences(configs: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    """Return [key, value in each configuration] of every key that differs; – where a key is missing."""
    flattened = [dict(value_rows(config)) for config in configs]
    keys = dict.fromkeys(key for values in flattened for key in values)
    rows = [[key, *(values.get(key, "–") for values in flattened)] for key in keys]
    differing = [row for row in rows if len(set(row[1:])) > 1]
    most = limit(len(differing) * len(configs))
    return [[shorten(text, most) for text in row] for row in differing]
