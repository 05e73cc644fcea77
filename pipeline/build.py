"""Build one artifact: a stage in a child process, between taking its lock and the commit."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from launch import job
from launch.config import LauncherConfig
from launch.errors import LaunchError, ProcessFailed
from launch.process import Outcome
from pipeline.errors import StageFailed, StoreError
from pipeline.graph import StageSpec
from pipeline.store import Manifest, Store

RECORDED = ("grpoflow", "mindspore", "numpy", "safetensors", "tokenizers", "luigi", "hydra-core")
ROOM = "free space, or choose another store with store=DIR"
FULL_BYTES = 1 << 20  # less than this, and even logs are lost
Progress = Callable[[dict[str, Any] | None], None]


def build(spec: StageSpec, store: Store, launcher: LauncherConfig, on_progress: Progress) -> Manifest:
    """Run a stage and commit its artifact, unless somebody else has done so meanwhile.

    Args:
        spec: the stage.
        store: where its inputs are and its artifact goes.
        launcher: how its processes run.
        on_progress: called ten times a second with the stage's latest progress line, or None.

    Raises:
        StageFailed: the process ended badly; nothing is committed, checkpoints and logs stay.
        StoreError: the store could not be written.
    """
    with store.lock(spec.key):
        if store.problem(spec.key) is None:
            return store.manifest(spec.key)
        job.end_leftovers(_job_name(spec, store))  # before their directories are touched again
        store.quarantine(spec.key)
        shortage = disk_shortage(spec, store)
        if shortage is not None:
            raise StoreError(shortage)
        staging = store.stage(spec.key)
        try:
            manifest = _run(spec, store, staging, launcher, on_progress)
            store.commit(staging, manifest)
        finally:
            store.discard(staging)
        return manifest


def disk_shortage(spec: StageSpec, store: Store) -> str | None:
    """Why the store's disk is too small for a stage that knows its size, or None."""
    if spec.bytes_written is None:
        return None
    place = next(path for path in (store.root, *store.root.parents) if path.exists())
    free = shutil.disk_usage(place).free
    if spec.bytes_written <= free:
        return None
    needed = f"{spec.name} writes about {spec.bytes_written / 2**30:.1f} GiB"
    return f"{store.root}: {free / 2**30:.1f} GiB free, {needed}; {ROOM}"


def describe(spec: StageSpec, store: Store, launcher: LauncherConfig) -> list[str]:
    """The command line that would start a stage's work now."""
    if spec.engine is not None:
        from pipeline import engines  # here: engine=local need not load it

        return engines.command(spec, store)
    logs = store.log_dir(spec.key)
    return job.describe(
        _command(spec.name, spec, store), workers=spec.workers, log_dir=logs, launcher=launcher
    )


def _command(entry: str, spec: StageSpec, store: Store) -> list[str]:
    """Arguments of the interpreter for a stage's process."""
    return ["-m", "stages", entry, str(store.log_dir(spec.key) / "spec.json")]


def _job_name(spec: StageSpec, store: Store) -> str:
    return str(store.path(spec.key))


def _run(
    spec: StageSpec, store: Store, staging: Path, launcher: LauncherConfig, on_progress: Progress
) -> Manifest:
    logs = store.log_dir(spec.key)
    progress = logs / "progress.jsonl"
    progress.write_text("", encoding="utf-8")
    (logs / "spec.json").write_text(
        json.dumps(_spec_file(spec, store, staging, progress), indent=1), encoding="utf-8"
    )
    name = _job_name(spec, store)

    def tell() -> None:
        on_progress(_last_line(progress))

    def stage(entry: str, workers: int = 1) -> Outcome:
        program = _command(entry, spec, store)
        return job.run(program, workers=workers, job=name, log_dir=logs, launcher=launcher, on_poll=tell)

    try:
        if spec.engine is None:
            outcome = stage(spec.name, spec.workers)
        else:
            from pipeline import engines

            outcome = engines.run(spec, store, name, launcher, stage, tell)
    except ProcessFailed as error:
        if shutil.disk_usage(store.root).free < FULL_BYTES:  # the log could not be written either
            raise StageFailed(spec.name, f"{store.root}: disk full; {ROOM}", error.log, error.tail) from error
        raise StageFailed(spec.name, f"exit code {error.exit_code}", error.log, error.tail) from error
    except LaunchError as error:
        raise StageFailed(spec.name, str(error), logs / "stage.log", []) from error
    return Manifest(
        stage=spec.name,
        fingerprint=spec.key.fingerprint,
        code_version=spec.version,
        config=dict(spec.config),
        inputs={name: key.fingerprint for name, key in spec.inputs.items()},
        external=dict(spec.external),
        versions=_versions(),
        git_commit=_git_commit(),
        seed=spec.config.get("seed"),
        started=outcome.started,
        ended=outcome.ended,
        host=socket.gethostname(),
        peak_memory_gib=round(outcome.peak_memory_gib, 3),
    )


def _spec_file(spec: StageSpec, store: Store, staging: Path, progress: Path) -> dict[str, Any]:
    return {
        "stage": spec.name,
        "config": spec.config,
        "inputs": {name: str(store.path(key)) for name, key in spec.inputs.items()},
        "output": str(staging),
        "work": str(store.work_dir(spec.key)),
        "progress_file": str(progress),
    }


def _last_line(file: Path) -> dict[str, Any] | None:
    """The latest whole progress line; a line that is being written is passed over."""
    with file.open("rb") as stream:
        stream.seek(max(0, os.fstat(stream.fileno()).st_size - 4096))
        lines = stream.read().split(b"\n")[:-1]
    if not lines:
        return None
    try:
        value = json.loads(lines[-1])
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def _versions() -> dict[str, str]:
    found = {}
    for package in RECORDED:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def _git_commit() -> str | None:
    """Commit of grpoflow's own checkout; None when it is installed without one."""
    root = Path(__file__).parents[1]
    if not (root / ".git").exists():
        return None
    try:
        shown = subprocess.run(
            ["git", "-C", str(root), "rev-parse", "HEAD"],
            capture_output=True,
            text=True,
            timeout=10,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return shown.stdout.strip()
