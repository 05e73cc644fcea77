"""Pages rendered from the current store: the list of runs, and reports of unfinished runs."""

from dataclasses import astuple
from pathlib import Path
from typing import Any

from pipeline.run.origin import origin
from pipeline.store import history
from pipeline.store.attempt import find_all
from pipeline.ui import watch
from stages.base.files import read_json
from stages.base.reader import read
from stages.report.config import ReportConfig
from stages.report.page import Live, Origin, render, render_page
from stages.report.text import number

MAX_ROWS = 200  # of runs and of sweeps, newest first


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
    head = f"{record.outcome}: {record.message}" if record.failed_stage else record.state
    rows = [astuple(row) for row in watch.rows(root, record)]
    live = Live(f"Run {record.id}", head, record.state == "running", watch.COLUMNS, rows)
    config = read(ReportConfig, record.section("report"))
    facts = Origin(**origin(root, record, root / "run"))  # the page's URL is /run/ID
    return render(inputs, config, live, began=record.started, origin=facts), None


def overview(root: Path) -> str:
    """Return the page with the list of runs and sweeps; it refreshes itself."""
    files = sorted(root.glob("sweeps/*/sweep.json"), key=lambda file: file.stat().st_mtime, reverse=True)
    runs = list(history.runs(root).values())[::-1][:MAX_ROWS]
    sweeps = [sweep for file in files[:MAX_ROWS] if (sweep := _sweep(file)) is not None]
    return render_page("overview.html", {"store": str(root), "runs": runs, "sweeps": sweeps, "text": _text})


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
