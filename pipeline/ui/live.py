"""Pages rendered from the current store: the list of runs, and reports of unfinished runs."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipeline.errors import ConfigError, Problem
from pipeline.run.origin import origin
from pipeline.store import history
from pipeline.store.attempt import find_all
from pipeline.store.history import Record
from pipeline.ui import watch
from stages.base.files import read_json
from stages.base.reader import read
from stages.report.artifacts import Artifacts
from stages.report.compare import MAX_RUNS, ComparedRun
from stages.report.compare import render as render_comparison
from stages.report.config import ReportConfig
from stages.report.page import Live, Origin, render, render_page
from stages.report.text import duration, number

MAX_ROWS = 200  # of runs and of sweeps, newest first
MAX_LIVE = 20
"""Number of running runs whose progress the list shows: it is read from files of all their stages."""
REFRESH_S = 5


def report(root: Path, run_id: str) -> tuple[str, str | None]:
    """Return (page, None), or ("", "report/FINGERPRINT") if the finished run has a report in the store.

    Raises:
        ConfigError: there is no such run.
    """
    record = history.find(root, run_id)
    final = record.artifacts.get("report", "")
    if record.state != "running" and (root / final / "index.html").exists():
        return "", final
    inputs: dict[str, Path] = {}
    for stage, artifact in record.artifacts.items():
        complete = root / artifact
        directory = complete if complete.is_dir() else next(iter(find_all(root, artifact)), None)
        if stage != "report" and directory is not None:
            inputs[stage] = directory
    stages = watch.rows(root, record)
    rows = [row.cells for row in stages]
    live = Live(f"Run {record.id}", _head(record, stages), record.state == "running", watch.COLUMNS, rows)
    config = read(ReportConfig, record.section("report"))
    facts = Origin(**origin(root, record, root / "run"))  # the page's URL is /run/ID
    return render(inputs, config, live, began=record.started, origin=facts), None


def _head(record: Record, stages: Sequence[watch.StageStatus]) -> str:
    """Return the state of a run in words; of a running one, since when and how long it will take."""
    if record.state != "running":
        return f"{record.outcome}: {record.message}" if record.failed_stage else record.state
    began, now = time.localtime(record.started), time.time()
    day = "" if began[:3] == time.localtime(now)[:3] else time.strftime("%-d %B, ", began)
    left = watch.left_of_run(record, stages)
    told = f"running (started {day}{time.strftime('%H:%M', began)}, {_coarse(now - record.started)} so far"
    return f"{told}, {left})" if left is not None else f"{told})"


def _coarse(seconds: float) -> str:
    """Return a duration in whole minutes, or seconds below one."""
    return f"{max(0, round(seconds))} s" if seconds < 60 else duration(seconds).partition(" min")[0] + " min"


@dataclass(frozen=True)
class Row:
    """A run in the list of runs."""

    run: Record
    overrides: str
    """Overrides that differ between the listed runs."""
    progress: str = ""
    """Stage, step, reward and time left of a running run."""

    @property
    def searched(self) -> str:
        """The text that the filter looks at."""
        words = (
            self.run.id,
            self.run.name,
            self.run.outcome,
            "pinned" if self.run.pinned else "",
            _text(self.run.overrides),
        )
        return " ".join(filter(None, words)).lower()

    def accuracy(self, when: str) -> object:
        """Return the accuracy before (sft) or after (grpo) training."""
        return self.run.result.get(f"accuracy_{when}")

    def sorted(self, when: str) -> str:
        """Return an accuracy as the page sorts it; empty if there is none."""
        share = number(self.accuracy(when))
        return "" if share is None else str(share)


def overview(root: Path) -> str:
    """Return the page with the list of runs and sweeps; its script refreshes, sorts and filters it."""
    files = sorted(root.glob("sweeps/*/sweep.json"), key=lambda file: file.stat().st_mtime, reverse=True)
    records = list(history.runs(root).values())[::-1][:MAX_ROWS]
    running = [record.id for record in records if record.state == "running"][:MAX_LIVE]
    different = history.differing_overrides(records)
    rows = [
        Row(run, " ".join(different[run.id]), _progress(root, run) if run.id in running else "")
        for run in records
    ]
    sweeps = [sweep for file in files[:MAX_ROWS] if (sweep := _sweep(file)) is not None]
    values = {"store": str(root), "rows": rows, "sweeps": sweeps, "text": _text, "refresh_s": REFRESH_S}
    return render_page("overview.html", {**values, "most": MAX_RUNS}, scripts=("overview.js",))


def _progress(root: Path, record: Record) -> str:
    """Return what the running stages of a run do, and the time left of the run."""
    stages = watch.rows(root, record)
    left = watch.left_of_run(record, stages)
    busy = [row for row in stages if row.state == "running"]
    texts = [
        " ".join(filter(None, [row.stage, row.step, row.reward and f"reward {row.reward}"])) for row in busy
    ]
    return " · ".join([*texts, *([] if left is None else [str(left)])])


def comparison(root: Path, selectors: Sequence[str]) -> str:
    """Return the page that compares runs of a store; raise ConfigError if there are too few or too many."""
    runs = {run.id: run for run in (history.find(root, selector) for selector in selectors)}
    return render_comparison(compared(root, list(runs.values()), "/"))


def compared(root: Path, records: Sequence[Record], prefix: str) -> list[ComparedRun]:
    """Return what a page that compares runs shows of them; `prefix` leads from the page to the store.

    Raises:
        ConfigError: there are too few or too many runs.
    """
    if not 2 <= len(records) <= MAX_RUNS:
        rule = f"compares 2 to {MAX_RUNS} different runs"
        raise ConfigError([Problem("--compare", len(records), rule, "see `grpoflow runs`")])
    runs = []
    for record in records:
        made = Artifacts.load({name: root / artifact for name, artifact in record.artifacts.items()})
        stored = record.artifacts.get("report", "")
        runs.append(
            ComparedRun(
                label=" · ".join(filter(None, [record.name, record.id])),
                state=record.outcome,
                started=record.started,
                duration=record.duration,
                command=record.command,
                result=made.result("evaluate"),
                report=f"{prefix}{stored}/index.html" if (root / stored / "index.html").exists() else "",
                config=record.config,
                metrics=made.rows("grpo", "metrics.jsonl"),
            )
        )
    return runs


def _text(overrides: list[str]) -> str:
    return " ".join(str(override) for override in overrides if not str(override).startswith("store="))


def _sweep(file: Path) -> dict[str, Any] | None:
    """Return the row of a sweep; None if its file is damaged."""
    try:
        values: dict[str, Any] = read_json(file)
        results = [number(point["result"].get("accuracy_grpo")) for point in values["points"]]
        return {
            "id": file.parent.name,
            "points": len(values["points"]),
            "finished": sum(point["state"] == "finished" for point in values["points"]),
            "best": max((value for value in results if value is not None), default=None),
            "written": float(values["written"]),
            "overrides": list(values["overrides"]),
        }
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
