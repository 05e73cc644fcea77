"""Pages of `grpoflow ui`, drawn from the store as it is now: the list of runs, and a run's report so far."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pipeline.store import history
from pipeline.store.history import Record
from pipeline.ui import watch
from stages.base.files import read_json
from stages.base.reader import read
from stages.report.config import ReportConfig
from stages.report.page import Live, render
from stages.report.templates import environment, own
from stages.report.text import number

MOST = 200
"""Runs and sweeps listed, the newest first."""


def report(root: Path, wanted: str) -> tuple[str, str | None]:
    """(page, None) of a run that goes on or broke off, or ("", report/FIRST-16-DIGITS) of a finished one.

    Raises:
        ConfigError: there is no such run.
    """
    record = history.find(root, wanted)
    final = record.artifacts.get("report", "")
    if record.state != "running" and (root / final / "index.html").exists():
        return "", final
    inputs: dict[str, Path] = {}
    for stage, artifact in record.artifacts.items():
        place = root / artifact
        if stage != "report":
            directory = place if place.is_dir() else watch.seat(root, artifact, record.started)
            inputs |= {} if directory is None else {stage: directory}
    head = f"{record.state}{f' in {record.failed_stage}: {record.message}' if record.failed_stage else ''}"
    rows = [row.cells for row in watch.rows(root, record)]
    now = Live(f"Run {record.id}", head, record.state == "running", watch.COLUMNS, rows)
    config = read(ReportConfig, record.section("report"))
    return render(inputs, config, now, began=record.started), None


def overview(root: Path) -> str:
    """The list of runs and sweeps; the page asks for itself again every few seconds."""
    runs = [_run(record) for record in list(history.runs(root).values())[::-1][:MOST]]
    files = sorted(root.glob("sweeps/*/sweep.json"), key=lambda file: file.stat().st_mtime, reverse=True)
    sweeps = [sweep for file in files[:MOST] if (sweep := _sweep(file)) is not None]
    template = environment().get_template("overview.html")
    return template.render(store=str(root), runs=runs, sweeps=sweeps, style=own("style.css"))


def _run(record: Record) -> dict[str, Any]:
    """A row of overview.html."""
    return {
        "id": record.id,
        "name": record.name or "",
        "state": record.state,
        "detail": record.failed_stage or "",
        "started": record.started,
        "took_s": None if record.ended is None else record.ended - record.started,
        "before": number(record.result.get("accuracy_sft")),
        "after": number(record.result.get("accuracy_grpo")),
        "overrides": _told(record.overrides),
    }


def _sweep(file: Path) -> dict[str, Any] | None:
    """A sweep by its sweep.json; None where that is none, which must not take the list of runs with it."""
    try:
        values: dict[str, Any] = read_json(file)
        results = [number(point["result"].get("accuracy_grpo")) for point in values["points"]]
        return {
            "id": file.parent.name,
            "points": len(values["points"]),
            "finished": sum(point["state"] == "finished" for point in values["points"]),
            "best": max((value for value in results if value is not None), default=None),
            "written": float(values["written"]),
            "overrides": _told(values["overrides"]),
        }
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def _told(overrides: Sequence[str]) -> str:
    return " ".join(override for override in overrides if not override.startswith("store="))
