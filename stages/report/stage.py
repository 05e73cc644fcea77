"""Stage report: index.html and result.json {"bytes": n} from the artifacts of all other stages."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stages.base.context import Context
from stages.report.artifacts import mapping
from stages.report.config import ReportConfig
from stages.report.page import Origin, render
from stages.report.text import number

TRACKER_S = 60.0
"""Seconds that a tracker has to take the report."""


def run(context: Context) -> None:
    """Write the report of a run."""
    context.progress(0, 1, "drawing")
    config, defaults = context.section(ReportConfig, "report"), mapping(context.config.get("defaults"))
    began, origin = number(context.config.get("run_started")), context.config.get("origin")
    page = write_report(
        context.inputs, context.output, config, defaults, began, Origin(**origin) if origin else None
    )
    report_to_tracker(context.inputs, page)
    context.progress(1, 1, "written")


def report_to_tracker(inputs: Mapping[str, Path], page: Path) -> None:
    """Add the report to the run of an MLflow server that grpo was logged to.

    This takes a process of its own: a server that does not answer costs a warning, but not the report.
    """
    run = inputs.get("grpo", Path()) / "mlflow" / "run_id"
    if not run.is_file() or "MLFLOW_TRACKING_URI" not in os.environ:
        return
    command = [sys.executable, "-m", "stages.grpo.trackers.mlflow", run.read_text(encoding="ascii")]
    try:
        subprocess.run([*command, str(page)], check=True, timeout=TRACKER_S)
    except subprocess.SubprocessError as error:
        print(f"warning: mlflow did not get the report: {error}", file=sys.stderr, flush=True)


def write_report(
    inputs: Mapping[str, Path],
    output: Path,
    config: ReportConfig,
    defaults: Mapping[str, Any] | None = None,
    began: float | None = None,
    origin: Origin | None = None,
) -> Path:
    """Render the page of a run into the directory `output`; return the path of index.html."""
    page = output / "index.html"
    content = render(inputs, config, defaults=defaults, began=began, origin=origin).encode("utf-8")
    page.write_bytes(content)
    (output / "result.json").write_text(json.dumps({"bytes": len(content)}) + "\n", encoding="utf-8")
    return page
