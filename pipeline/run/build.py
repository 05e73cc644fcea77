"""Build of one artifact: lock it, run the stage in child processes, and commit the result."""

import contextlib
import json
import shutil
import socket
import subprocess
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Protocol

from launch.config import LauncherConfig
from launch.errors import LaunchError, ProcessFailed
from launch.process import child, job
from launch.process.child import Outcome
from launch.process.tree import end_job
from pipeline.config.load import load
from pipeline.errors import ConfigError, NoResult, StageFailed, StoreError
from pipeline.fingerprint import DIGESTS, DigestCache
from pipeline.plan.graph import StageSpec
from pipeline.plan.process import ROOM, SPEC, disk_shortage, stage_command
from pipeline.run.progress import tail
from pipeline.store.attempt import Attempt, attempt
from pipeline.store.store import Manifest, Store
from stages.base.context import WARNINGS

RECORDED = (
    "grpoflow",
    "mindspore",
    "numpy",
    "safetensors",
    "tokenizers",
    "luigi",
    "hydra-core",
    "modelscope-hub",
)
FULL_BYTES = 1 << 20  # free space below which the disk counts as full


class Watcher(Protocol):
    """Callbacks for the progress of a build."""

    def wait(self, stage: str) -> None:
        """Report that another process builds the artifact."""

    def start(self, stage: str) -> None:
        """Report that the stage starts."""

    def warn(self, stage: str, text: str) -> None:
        """Report a warning of the stage."""

    def progress(self, stage: str, line: dict[str, Any] | None) -> None:
        """Report the latest progress line, or None; called about ten times a second."""


def build(
    spec: StageSpec,
    store: Store,
    launcher: LauncherConfig,
    watcher: Watcher,
    run_started: float,
    views: Callable[[StageSpec, Path], Mapping[str, Path]] = lambda spec, work: {},
    command: Sequence[str] | None = None,
    replaces: str | None = None,
) -> bool:
    """Run a stage and commit its artifact, unless another process did so in the meantime.

    Args:
        spec: the stage.
        store: store with its inputs, and for its artifact.
        launcher: configuration for starting its processes.
        watcher: callbacks for progress.
        run_started: start of the run (Unix time, seconds), for the report.
        views: downloads the required files of remote-only inputs below a directory; input stage -> directory.
        command: overrides for the model card; None: the run has no command line.
        replaces: manifest digest of an existing artifact to rebuild; None: an existing artifact is used.

    Returns:
        True if the stage ran here; False if another process built the artifact in the meantime.

    Raises:
        StageFailed: the stage failed, or ended without a required file; nothing is committed, and checkpoints
            and logs are kept.
        StoreError: the store cannot be written.
    """
    with store.lock(spec.key, lambda: watcher.wait(spec.name)):
        if store.problem(spec.key) is None and store.manifest_digest(spec.key) != replaces:
            return False
        watcher.start(spec.name)
        with attempt(store, spec.key) as slot:
            end_job(slot.job, grace_s=0.0)  # processes of a killed attempt
            store.quarantine_damaged(spec.key)
            downloaded = views(spec, slot.work)
            _check_inputs(spec, store, downloaded)
            _check_external(spec, store)
            shortage = disk_shortage(spec, store)
            if shortage is not None:
                raise StoreError(shortage)
            try:
                manifest = _run(spec, store, slot, launcher, watcher, run_started, downloaded, command)
            except OSError as error:  # the disk is full, or the attempt's directory was removed
                raise StoreError.of(error, store.root) from error
            if not spec.computes:  # training reads the user's files only at its start
                _check_external(spec, store)
            _commit(spec, store, slot, manifest, replaces)
            slot.done()
        return True


def _commit(spec: StageSpec, store: Store, slot: Attempt, manifest: Manifest, replaces: str | None) -> None:
    try:
        store.commit(slot.staging, manifest, replaces)
    except NoResult as error:
        log = slot.logs / "stage.log"
        raise StageFailed(spec.name, str(error), log, child.tail(log), diagnosis(slot.logs)) from error


def _check_inputs(spec: StageSpec, store: Store, downloaded: Mapping[str, Path]) -> None:
    """Compare the digests of all input files, which the stage reads anyway, with their manifests.

    Raises:
        StageFailed: an input is damaged; it is moved to quarantine, so that the next run rebuilds it.
    """
    for name, key in spec.inputs.items():
        problem = None if key.stage in downloaded else store.problem(key, deep=True)
        if problem is not None:
            moved = store.quarantine(key)
            cause = f"its input {name} ({key}) is damaged: {problem}"
            remedy = f"moved to {moved}; repeat the command to rebuild {key.stage}"
            raise StageFailed(spec.name, f"{cause}; {remedy}", store.log_dir(spec.key), [])


def _check_external(spec: StageSpec, store: Store) -> None:
    """Check that the user's files still have the digests in the fingerprint.

    Raises:
        StageFailed: a file was changed or removed.
    """
    cache = DigestCache(store.root / DIGESTS)
    for path, planned in spec.external.items():
        try:
            same = cache.digest(Path(path)) == planned
        except ConfigError:
            same = False
        if not same:
            cause = f"{path} has been changed, or is gone, since this run was planned"
            remedy = "repeat the command to plan with the current file"
            raise StageFailed(spec.name, f"{cause}; {remedy}", store.log_dir(spec.key), [])


def _run(
    spec: StageSpec,
    store: Store,
    slot: Attempt,
    launcher: LauncherConfig,
    watcher: Watcher,
    run_started: float,
    downloaded: Mapping[str, Path],
    command: Sequence[str] | None,
) -> Manifest:
    logs = slot.logs
    progress = logs / "progress.jsonl"
    progress.write_text("", encoding="utf-8")
    warnings = logs / WARNINGS
    warnings.write_text("", encoding="utf-8")
    num_reported = 0
    values = _spec_file(spec, store, slot, progress, run_started, downloaded, command)
    (logs / SPEC).write_text(json.dumps(values, indent=1), encoding="utf-8")

    def report() -> None:
        nonlocal num_reported
        slot.beat()
        *lines, _ = warnings.read_text(encoding="utf-8", errors="replace").split("\n")
        for line in lines[num_reported:]:
            watcher.warn(spec.name, line)
        num_reported = len(lines)
        watcher.progress(spec.name, next(iter(tail(progress, 4096)[-1:]), None))

    def stage(entry: str, workers: int = 1) -> Outcome:
        program = stage_command(entry, logs)
        return job.run(
            program, workers=workers, job=slot.job, log_dir=logs, launcher=launcher, on_poll=report
        )

    try:
        if spec.program is None:
            outcome = stage(spec.name, spec.workers)
        else:
            from pipeline.engines import program

            outcome = program.run(spec, slot, launcher, stage, report)
        report()
    except ProcessFailed as error:
        report()
        if shutil.disk_usage(store.root).free < FULL_BYTES:  # the log could not be written either
            raise StageFailed(spec.name, f"{store.root}: disk full; {ROOM}", error.log, error.tail) from error
        cause = f"exit code {error.exit_code}"
        raise StageFailed(spec.name, cause, error.log, error.tail, diagnosis(logs)) from error
    except LaunchError as error:
        raise StageFailed(spec.name, str(error), logs / "stage.log", [], diagnosis(logs)) from error
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


def diagnosis(logs: Path) -> list[str]:
    """Return the cause of a failure according to the stage's logs; empty if the stage reported it itself."""
    from launch.diagnose.diagnosis import diagnose  # imported late: only failures need it
    from launch.diagnose.failures import GRPOFLOW_ERROR

    diagnosed = diagnose(logs)
    first = diagnosed.first
    return diagnosed.lines() if first is not None and first.failure is not GRPOFLOW_ERROR else []


def _spec_file(
    spec: StageSpec,
    store: Store,
    slot: Attempt,
    progress: Path,
    run_started: float,
    downloaded: Mapping[str, Path],
    command: Sequence[str] | None,
) -> dict[str, Any]:
    """Return the stage's spec.json: its configuration and paths, and values that are not fingerprinted."""
    # The model card shows the command; the report shows deviations from the defaults and which stages were
    # cached. These values do not change the artifact's meaning, hence they are not part of its fingerprint.
    extra: dict[str, Any] = {}
    if spec.name == "export" and command is not None:
        extra = {"command": list(command)}
    elif spec.name == "report":
        extra = {"defaults": load([]).plain(), "run_started": run_started}
    return {
        "stage": spec.name,
        "config": {**spec.config, **extra},
        "inputs": {
            name: str(downloaded.get(key.stage, store.path(key))) for name, key in spec.inputs.items()
        },
        "output": str(slot.staging),
        "work": str(slot.work),
        "progress_file": str(progress),
    }


def _versions() -> dict[str, str]:
    versions = {}
    for package in RECORDED:
        with contextlib.suppress(PackageNotFoundError):
            versions[package] = version(package)
    return versions


def _git_commit() -> str | None:
    """Return the commit of grpoflow's checkout; None if it was not installed from a checkout."""
    root = Path(__file__).parents[2]
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
