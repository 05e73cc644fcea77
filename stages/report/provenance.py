"""Origin of a run's artifacts: environment of the stages, and the files that each one wrote."""

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
    """Return fingerprint, inputs, size and files (at most 24) of each stage's artifact."""
    result = []
    for stage, manifest in run.manifests.items():
        entries = sorted(mapping(manifest.get("files")).items())
        files = [(path, number(mapping(entry).get("size"))) for path, entry in entries]
        result.append({
            "stage": stage,
            "fingerprint": str(manifest.get("fingerprint") or "")[:64],
            "inputs": [str(name) for name in mapping(manifest.get("inputs"))][:MAX_INPUTS],
            "count": len(files),
            "bytes": sum(size or 0 for _, size in files),
            "files": files[:MAX_FILES],
        })  # fmt: skip
    return result
