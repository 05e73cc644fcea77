"""A stage's process: its command line, and the disk space that it needs."""

import json
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pipeline.plan.graph import StageSpec
from pipeline.store.store import Store
from stages.base.files import shown_bytes
from stages.catalog import STAGES
from stages.own_packages import START

ROOM = "free space, or choose another store with store=DIR"
SPEC, PROGRESS = "spec.json", "progress.jsonl"


def disk_shortage(spec: StageSpec, store: Store) -> str | None:
    """Return an error message if the store's disk has too little space for a stage, or None."""
    if spec.stage.bytes_written is None:
        return None
    existing = next(path for path in (store.root, *store.root.parents) if path.exists())
    free = shutil.disk_usage(existing).free
    written = spec.stage.bytes_written - store.work_bytes(spec.key)  # an interrupted attempt's remain in use
    if written <= free:
        return None
    needed = f"{spec.name} writes about {shown_bytes(written)}"
    return f"{store.root}: {shown_bytes(free)} free, {needed}, {shown_bytes(written - free)} more; {ROOM}"


def entry_of(spec: StageSpec) -> str:
    """Return the argument of `python -m stages` for a stage: its name, or MODULE:run of an engine's own."""
    declared = STAGES.get(spec.name, spec.stage)
    return spec.name if declared.entry == spec.stage.entry else f"{spec.stage.entry}:run"


def command_line(spec: StageSpec, store: Store) -> list[str]:
    """Return the program of a stage with its arguments; several workers run it under msrun or on Ray."""
    if spec.stage.program is not None:
        from pipeline.engines import program as outside  # here: not needed with engine=local

        return outside.command(spec, store)
    # started by stages/start.py, which does the same whatever the working directory contains
    return [sys.executable, "-m", "stages", entry_of(spec), str(store.log_dir(spec.key) / SPEC)]


def write_spec(
    directory: Path,
    entry: str,
    config: Mapping[str, Any],
    inputs: Mapping[str, Path],
    output: Path | None = None,
    work: Path | None = None,
    code: Mapping[str, tuple[str, str]] | None = None,
) -> list[str]:
    """Write spec.json for a stage, or a function outside the graph; return the interpreter's arguments.

    Checkpoints are written to `work` and the artifact to `output`; both are `directory` by default. `code`:
    user's module -> its file and digest.
    """
    values = {"stage": entry, "config": config, "inputs": {name: str(path) for name, path in inputs.items()}}
    values |= {"output": str(output or directory), "work": str(work or directory)}
    values |= {"progress_file": str(directory / PROGRESS), "code": code or {}}
    (directory / SPEC).write_text(json.dumps(values, indent=1), encoding="utf-8")
    return stage_command(entry, directory)


def stage_command(entry: str, logs: Path) -> list[str]:
    """Return the interpreter's arguments for a stage's process."""
    return [START, "stages", entry, str(logs / SPEC)]
