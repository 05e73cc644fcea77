"""Stage report: index.html, the file that draws its charts, and result.json {"bytes": n}.

The artifact is complete in itself: it can be copied to another machine and read there without a network.
"""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from stages.base.context import Context
from stages.own_packages import START
from stages.report.artifacts import mapping
from stages.report.charts import PLOTLY, plotly
from stages.report.config import ReportConfig
from stages.report.gates import GatesConfig
from stages.report.page import Origin, render
from stages.report.text import number


def run(context: Context) -> None:
    """Write the report of a run."""
    context.progress(0, 1, "drawing")
    values = context.config
    content = render(
        context.inputs,
        context.section(ReportConfig, "report"),
        defaults=mapping(values.get("defaults")),
        began=number(values.get("run_started")),
        origin=Origin(**values["origin"]) if values.get("origin") else None,
        gates=context.section(GatesConfig, "gates") if "gates" in values else None,
    ).encode("utf-8")
    page = context.output / "index.html"
    page.write_bytes(content)
    (context.output / PLOTLY).write_bytes(plotly())
    context.write_result({"bytes": len(content)})
    report_to_tracker(context.inputs, page)
    context.progress(1, 1, "written")


def report_to_tracker(inputs: Mapping[str, Path], page: Path) -> None:
    """Add the report to the run of an MLflow server that grpo was logged to.

    This takes a process of its own: a server that does not answer costs a warning, but not the report.
    """
    run = inputs.get("grpo", Path()) / "mlflow" / "run_id"
    if not run.is_file() or "MLFLOW_TRACKING_URI" not in os.environ:
        return
    command = [sys.executable, START, "stages.grpo.trackers.mlflow", run.read_text(encoding="ascii")]
    try:
        subprocess.run([*command, str(page)], check=True, timeout=60)
    except subprocess.SubprocessError as error:
        print(f"warning: mlflow did not get the report: {error}", file=sys.stderr, flush=True)
