"""Stage report: index.html and result.json {"bytes": n} from the artifacts of all other stages."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stages.base.context import Context
from stages.report.artifacts import mapping
from stages.report.config import ReportConfig
from stages.report.page import Origin, render
from stages.report.text import number


def run(context: Context) -> None:
    """Write the report of a run."""
    context.progress(0, 1, "drawing")
    config, defaults = context.section(ReportConfig, "report"), mapping(context.config.get("defaults"))
    began, origin = number(context.config.get("run_started")), context.config.get("origin")
    write_report(
        context.inputs, context.output, config, defaults, began, Origin(**origin) if origin else None
    )
    context.progress(1, 1, "written")


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
