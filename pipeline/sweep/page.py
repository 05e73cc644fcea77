"""HTML page of a sweep, rendered by stages/report from the artifacts of its points."""

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from stages.report import sweep as drawn
from stages.report.artifacts import Run


def page(values: Mapping[str, Any], varied: Sequence[str], store: Path, config_dir: Path | None) -> str:
    """Return the page as HTML."""
    named = dict.fromkeys(name for point in values["points"] for name in point["artifacts"].values())
    artifacts = Run.load({name: store / name for name in named if (store / name).is_dir()})
    trained = [name for name in artifacts.directories if name.startswith("grpo/")]
    options = ["--config-dir", str(config_dir)] if config_dir else []
    options += shlex.split(values.get("target", ""))
    points = [
        drawn.SweepPoint(
            number=point["number"],
            state=point["state"],
            message=point["message"],
            chosen=_chosen(point["overrides"], varied),
            command=shlex.join(["grpoflow", "run", *options, *point["overrides"]]),
            result=point["result"],
            artifacts=point["artifacts"],
        )
        for point in values["points"]
    ]
    return drawn.render(
        title=values["id"],
        command=shlex.join(["grpoflow", "sweep", *options, *values["overrides"]]),
        written=values["written"],
        sweep_points=points,
        manifests={name: manifest for name, manifest in artifacts.manifests.items() if manifest},
        metrics={name: artifacts.rows(name, "metrics.jsonl") for name in trained},
    )


def _chosen(overrides: Sequence[str], varied: Sequence[str]) -> dict[str, str]:
    values = dict(override.partition("=")[::2] for override in overrides)
    return {key: values[key] for key in varied if key in values}
