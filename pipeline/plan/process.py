"""A stage's process: its command line, and the disk space that it needs."""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from launch.config import LauncherConfig
from launch.process import msrun
from pipeline.plan.graph import StageSpec
from pipeline.store.store import Store
from stages.base.files import shown_bytes

ROOM = "free space, or choose another store with store=DIR"
SPEC = "spec.json"


def disk_shortage(spec: StageSpec, store: Store) -> str | None:
    """Return an error message if the store's disk has too little space for a stage, or None."""
    if spec.bytes_written is None:
        return None
    existing = next(path for path in (store.root, *store.root.parents) if path.exists())
    free = shutil.disk_usage(existing).free
    if spec.bytes_written <= free:
        return None
    needed = f"{spec.name} writes about {shown_bytes(spec.bytes_written)}"
    short = shown_bytes(spec.bytes_written - free)
    return f"{store.root}: {shown_bytes(free)} free, {needed}, {short} more; {ROOM}"


def describe(spec: StageSpec, store: Store, launcher: LauncherConfig) -> list[str]:
    """Return the command line that would start a stage."""
    if spec.program is not None:
        from pipeline.engines import program as outside  # here: not needed with engine=local

        return outside.command(spec, store, launcher)
    logs = store.log_dir(spec.key)
    return msrun.describe(
        stage_command(spec.name, logs), workers=spec.workers, log_dir=logs, launcher=launcher
    )


def write_spec(
    directory: Path, entry: str, config: Mapping[str, Any], inputs: Mapping[str, Path]
) -> list[str]:
    """Write the spec of an entry point of `stages` outside the graph; return the interpreter's arguments."""
    values = {"stage": entry, "config": config, "inputs": {name: str(path) for name, path in inputs.items()}}
    values |= {"output": str(directory), "work": str(directory)}
    values |= {"progress_file": str(directory / "progress.jsonl")}
    (directory / SPEC).write_text(json.dumps(values), encoding="utf-8")
    return stage_command(entry, directory)


def stage_command(entry: str, logs: Path) -> list[str]:
    """Return the interpreter's arguments for a stage's process."""
    return ["-m", "stages", entry, str(logs / SPEC)]
