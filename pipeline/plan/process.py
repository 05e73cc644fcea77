"""The process that does a stage's work: its command line, and the room that it needs on disk."""

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
    """Why the store's disk is too small for a stage that knows its size, or None."""
    if spec.bytes_written is None:
        return None
    place = next(path for path in (store.root, *store.root.parents) if path.exists())
    free = shutil.disk_usage(place).free
    if spec.bytes_written <= free:
        return None
    needed = f"{spec.name} writes about {shown_bytes(spec.bytes_written)}"
    short = shown_bytes(spec.bytes_written - free)
    return f"{store.root}: {shown_bytes(free)} free, {needed}, {short} more; {ROOM}"


def describe(spec: StageSpec, store: Store, launcher: LauncherConfig) -> list[str]:
    """The command line that would start a stage's work now."""
    if spec.program is not None:
        from pipeline.engines import program as outside  # here: engine=local need not load it

        return outside.command(spec, store, launcher)
    logs = store.log_dir(spec.key)
    return msrun.describe(
        stage_command(spec.name, logs), workers=spec.workers, log_dir=logs, launcher=launcher
    )


def write_spec(
    directory: Path, entry: str, config: Mapping[str, Any], inputs: Mapping[str, Path]
) -> list[str]:
    """Write what an entry of `stages` hears that is no stage of the graph; arguments of the interpreter."""
    values = {"stage": entry, "config": config, "inputs": {name: str(path) for name, path in inputs.items()}}
    values |= {"output": str(directory), "work": str(directory)}
    values |= {"progress_file": str(directory / "progress.jsonl")}
    (directory / SPEC).write_text(json.dumps(values), encoding="utf-8")
    return stage_command(entry, directory)


def stage_command(entry: str, logs: Path) -> list[str]:
    """Arguments of the interpreter for a stage's process."""
    return ["-m", "stages", entry, str(logs / SPEC)]
