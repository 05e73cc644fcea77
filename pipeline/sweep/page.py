"""HTML page of a sweep, rendered by stages/report from the artifacts of its points."""

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pipeline.run.halving import METRICS
from pipeline.store import history
from pipeline.store.attempt import find_all
from pipeline.sweep.points import Point, varied
from stages.grpo.metrics import read_rows
from stages.report import sweep as drawn
from stages.report.artifacts import Artifacts
from stages.report.language import page_language


def page(values: Mapping[str, Any], points: Sequence[Point], store: Path, config_dir: Path | None) -> str:
    """Return the page as HTML, in the language of its runs; `values` is the content of sweep.json."""
    known = history.runs(store)
    records = [known[point.run] for point in points if point.run in known]
    with page_language(records[0].language if records else "en"):
        return _page(values, points, store, config_dir)


def _page(values: Mapping[str, Any], points: Sequence[Point], store: Path, config_dir: Path | None) -> str:
    keys = varied(points)
    named = dict.fromkeys(name for point in points for name in point.artifacts.values())
    artifacts = Artifacts.load({name: store / name for name in named if (store / name).is_dir()})
    trained = [name for name in artifacts.directories if name.startswith("grpo/")]
    stopped = {
        point.rung["artifact"]: read_rows(attempts[0] / METRICS)
        for point in points
        if point.rung is not None and (attempts := find_all(store, point.rung["artifact"]))
    }
    options = ["--config-dir", str(config_dir)] if config_dir else []
    options += shlex.split(values.get("target", ""))
    sweep_points = [
        drawn.SweepPoint(
            number=point.number,
            state=point.state,
            message=point.message,
            chosen={key: point.values[key] for key in keys if key in point.values},
            command=shlex.join(["grpoflow", "run", *options, *point.overrides]),
            result=point.result,
            artifacts=point.artifacts,
            rung=point.rung,
        )
        for point in points
    ]
    return drawn.render(
        title=values["id"],
        command=shlex.join(["grpoflow", "sweep", *options, *values["overrides"]]),
        written=values["written"],
        sweep_points=sweep_points,
        manifests={name: manifest for name, manifest in artifacts.manifests.items() if manifest},
        metrics={**stopped, **{name: artifacts.rows(name, METRICS) for name in trained}},
    )
