"""Pages rendered from the current store: the list of runs, and reports of unfinished runs."""

import json
import time
from collections import Counter
from collections.abc import Mapping, Sequence
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
from stages.report.language import page_language, translate
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
    config = read(ReportConfig, record.section("report"))
    with page_language(config.language):
        stages = watch.rows(root, record)
        rows = [row.cells for row in stages]
        title, told = translate("Run {id}", id=record.id), _told(record, stages)
    live = Live(title, record.state, told, record.state == "running", watch.COLUMNS, rows)
    facts = Origin(**origin(root, record, root / "run"))  # the page's URL is /run/ID
    return render(inputs, config, live, began=record.started, origin=facts), None


def _told(record: Record, stages: Sequence[watch.StageStatus]) -> str:
    """Return since when a run is running and how long it will take; of one that failed, where and why."""
    if record.state != "running":
        return f"{record.failed_stage}: {record.message}" if record.failed_stage else ""
    began, now = time.localtime(record.started), time.time()
    form = "%H:%M" if began[:3] == time.localtime(now)[:3] else translate("%-d %B, %H:%M")
    left = watch.left_of_run(record, stages)
    so_far = _coarse(now - record.started)
    told = translate("started {when}, {time} so far", when=time.strftime(form, began), time=so_far)
    return ", ".join([told, *([] if left is None else [str(left)])])


def _coarse(seconds: float) -> str:
    """Return a duration in whole minutes, or seconds below one."""
    if seconds < 60:
        return duration(max(0, round(seconds)))
    hours, minutes = divmod(int(seconds) // 60, 60)
    if hours:
        return duration(60 * (60 * hours + minutes))
    return translate("{min} min", min=minutes)


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
    """Return the page with the list of runs and sweeps, in the language of the newest run.

    Its script refreshes, sorts and filters it, and changes names and pins.
    """
    files = sorted(root.glob("sweeps/*/sweep.json"), key=lambda file: file.stat().st_mtime, reverse=True)
    records = list(history.runs(root).values())[::-1][:MAX_ROWS]
    with page_language(records[0].language if records else "en"):
        return _overview(root, records, files)


def _overview(root: Path, records: Sequence[Record], files: Sequence[Path]) -> str:
    running = [record.id for record in records if record.state == "running"][:MAX_LIVE]
    different = history.differing_overrides(records)
    rows = [
        Row(run, " ".join(different[run.id]), _progress(root, run) if run.id in running else "")
        for run in records
    ]
    sweeps = [sweep for file in files[:MAX_ROWS] if (sweep := _sweep(file)) is not None]
    values = {"store": str(root), "rows": rows, "sweeps": sweeps, "text": _text, "refresh_s": REFRESH_S}
    values |= {"most": MAX_RUNS, "max_name": history.MAX_NAME}
    return render_page("overview.html", values, scripts=("overview.js",))


def edit(root: Path, run_id: str, changes: Mapping[str, Any]) -> None:
    """Record a new name of a run or its pin in the history: {"name": text} or {"pinned": bool}, or both.

    Raises:
        ConfigError: there is no such run, or a change is not one of these.
        StoreError: the history cannot be written.
    """
    known = history.runs(root)
    if run_id not in known:
        raise ConfigError([Problem("RUN", run_id, f"is no run of {root}", "see `grpoflow runs`")])
    kinds = {"name": str, "pinned": bool}
    if not changes or any(type(value) is not kinds.get(key) for key, value in changes.items()):
        rule = 'must be {"name": text}, {"pinned": true or false}, or both'
        raise ConfigError([Problem("change", json.dumps(changes)[:100], rule)])
    name, pinned, record = changes.get("name"), changes.get("pinned"), known[run_id]
    if name is not None:
        history.check_name(name, "name")
    if name is not None and name != (record.name or ""):
        history.record(root, run_id, "named", name=name)
    if pinned is not None and pinned != record.pinned:
        history.record(root, run_id, "pinned" if pinned else "unpinned")


def _progress(root: Path, record: Record) -> str:
    """Return what the running stages of a run do, and the time left of the run."""
    stages = watch.rows(root, record)
    left = watch.left_of_run(record, stages)
    busy = [row for row in stages if row.state == "running"]
    texts = [
        " ".join(filter(None, [row.stage, row.step, row.reward and f"{translate('reward')} {row.reward}"]))
        for row in busy
    ]
    return " · ".join([*texts, *([] if left is None else [str(left)])])


def comparison(root: Path, selectors: Sequence[str]) -> str:
    """Return the page that compares runs of a store; raise ConfigError if there are too few or too many."""
    runs = {run.id: run for run in (history.find(root, selector) for selector in selectors)}
    with page_language(next(iter(runs.values())).language if runs else "en"):
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
                state=record.state,
                failed_stage=record.failed_stage or "",
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
        states = Counter(point["state"] for point in values["points"])
        return {
            "id": file.parent.name,
            "points": len(values["points"]),
            "finished": states.pop("finished", 0),
            "other": states,
            "best": max((value for value in results if value is not None), default=None),
            "written": float(values["written"]),
            "overrides": list(values["overrides"]),
        }
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
