"""Origin of a run's artifacts: environment of the stages, and the files that each one wrote."""

from collections.abc import Mapping
from typing import Any

from stages.report.artifacts import Run, mapping
from stages.report.configuration import MAX_ROWS, plain
from stages.report.text import number

MAX_FILES, MAX_INPUTS = 24, 20


def environment(run: Run) -> list[tuple[str, str]]:
    """Return commit, host, seed and versions; where stages differ, each value with its stages."""
    values: dict[str, dict[str, list[str]]] = {}
    for stage, manifest in run.manifests.items():
        facts = {"commit": manifest.get("git_commit"), "host": manifest.get("host")}
        facts |= {"seed": manifest.get("seed"), **mapping(manifest.get("versions"))}
        for key, value in facts.items():
            if value is not None:
                values.setdefault(str(key), {}).setdefault(plain(value), []).append(stage)
    rows = []
    for key, stages in values.items():
        several = [f"{value} ({', '.join(names)})" for value, names in stages.items()]
        rows.append((key, "; ".join(several) if len(stages) > 1 else next(iter(stages))))
    return rows[:MAX_ROWS]


def artifacts(run: Run) -> list[dict[str, Any]]:
    """Return fingerprint, inputs, size and files (at most 24) of each stage's artifact.

    An input is named by the stage that made it; by its role (such as weights) if that is not part of the run.
    """
    stages = {str(manifest.get("fingerprint")): stage for stage, manifest in run.manifests.items()}
    result = []
    for stage, manifest in run.manifests.items():
        entries = sorted(mapping(manifest.get("files")).items())
        files = [(path, number(mapping(entry).get("size"))) for path, entry in entries]
        result.append({
            "stage": stage,
            "fingerprint": str(manifest.get("fingerprint") or "")[:64],
            "inputs": _makers(manifest, stages),
            "count": len(files),
            "bytes": sum(size or 0 for _, size in files),
            "files": files[:MAX_FILES],
        })  # fmt: skip
    return result


def _makers(manifest: Mapping[str, Any], stages: Mapping[str, str]) -> list[str]:
    makers = {
        stages.get(str(made), str(role)): None for role, made in mapping(manifest.get("inputs")).items()
    }
    return list(makers)[:MAX_INPUTS]
