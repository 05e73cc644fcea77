"""Build one artifact: a stage in a child process, between taking its lock and the commit."""

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
FULL_BYTES = 1 << 20  # less than this, and even logs are lost


class Watcher(Protocol):
    """Who is told how an artifact comes about."""

    def wait(self, stage: str) -> None:
        """Another process builds it."""

    def start(self, stage: str) -> None:
        """It is built now."""

    def warn(self, stage: str, text: str) -> None:
        """The stage goes on, but somebody should know."""

    def progress(self, stage: str, line: dict[str, Any] | None) -> None:
        """Ten times a second: the stage's latest progress line, or None."""


def build(
    spec: StageSpec,
    store: Store,
    launcher: LauncherConfig,
    watcher: Watcher,
    run_started: float,
    views: Callable[[StageSpec, Path], Mapping[str, Path]] = lambda spec, work: {},
    command: Sequence[str] | None = None,
) -> bool:
    """Run a stage and commit its artifact, unless somebody else has done so meanwhile.

    Args:
        spec: the stage.
        store: where its inputs are and its artifact goes.
        launcher: how its processes run.
        watcher: is told what happens.
        run_started: Unix time of the run's start, for the report.
        views: brings what the stage reads of inputs that are not in the store, below a directory.
        command: overrides that a model card may tell; None: nobody typed any.

    Returns:
        Whether the stage ran here; False when another process has built it.

    Raises:
        StageFailed: the process ended badly, or without a result; nothing is committed, checkpoints and logs
            stay.
        StoreError: the store could not be written.
    """
    with store.lock(spec.key, lambda: watcher.wait(spec.name)):
        if store.problem(spec.key) is None:
            return False
        watcher.start(spec.name)
        with attempt(store, spec.key) as seat:
            job.end_leftovers(seat.job)  # a dead owner's, before their directories are touched again
            store.quarantine_damaged(spec.key)
            viewed = views(spec, seat.work)
            _check_inputs(spec, store, viewed)
            _check_external(spec, store)
            shortage = disk_shortage(spec, store)
            if shortage is not None:
                raise StoreError(shortage)
            try:
                manifest = _run(spec, store, seat, launcher, watcher, run_started, viewed, command)
            except OSError as error:  # of the attempt's own files: full, or removed meanwhile
                raise StoreError.of(error, store.root) from error
            if not spec.computes:  # what computes for hours reads the user's files when it begins
                _check_external(spec, store)
            _commit(spec, store, seat, manifest)
            seat.done()
        return True


def _commit(spec: StageSpec, store: Store, seat: Attempt, manifest: Manifest) -> None:
    try:
        store.commit(seat.staging, manifest)
    except NoResult as error:
        log = seat.logs / "stage.log"
        raise StageFailed(spec.name, str(error), log, child.tail(log), diagnosis(seat.logs)) from error


def _check_inputs(spec: StageSpec, store: Store, viewed: Mapping[str, Path]) -> None:
    """Read every input to its last byte: hours of computing must not rest on a flipped bit.

    It costs little, since the stage is about to read the same bytes.

    Raises:
        StageFailed: an input is damaged; it is moved away, so that the next run builds it again.
    """
    for name, key in spec.inputs.items():
        problem = None if key.stage in viewed else store.problem(key, deep=True)
        if problem is not None:
            moved = store.quarantine(key)
            cause = f"its input {name} ({key}) is damaged: {problem}"
            remedy = f"moved to {moved}; type the same command again: it builds {key.stage} anew"
            raise StageFailed(spec.name, f"{cause}; {remedy}", store.log_dir(spec.key), [])


def _check_external(spec: StageSpec, store: Store) -> None:
    """The user's files are still those that the artifact is named after; unchanged ones are not read again.

    Raises:
        StageFailed: one has been changed, or is gone.
    """
    cache = DigestCache(store.root / DIGESTS)
    for path, planned in spec.external.items():
        try:
            same = cache.digest(Path(path)) == planned
        except ConfigError:
            same = False
        if not same:
            cause = f"{path} has been changed, or is gone, since this run was planned"
            remedy = "type the same command again: it plans with the file as it is then"
            raise StageFailed(spec.name, f"{cause}; {remedy}", store.log_dir(spec.key), [])


def _run(
    spec: StageSpec,
    store: Store,
    seat: Attempt,
    launcher: LauncherConfig,
    watcher: Watcher,
    run_started: float,
    viewed: Mapping[str, Path],
    command: Sequence[str] | None,
) -> Manifest:
    logs = seat.logs
    progress = logs / "progress.jsonl"
    progress.write_text("", encoding="utf-8")
    warnings = logs / WARNINGS
    warnings.write_text("", encoding="utf-8")
    warned = 0
    values = _spec_file(spec, store, seat, progress, run_started, viewed, command)
    (logs / SPEC).write_text(json.dumps(values, indent=1), encoding="utf-8")

    def tell() -> None:
        nonlocal warned
        seat.beat()
        *lines, _ = warnings.read_text(encoding="utf-8", errors="replace").split("\n")
        for line in lines[warned:]:
            watcher.warn(spec.name, line)
        warned = len(lines)
        watcher.progress(spec.name, next(iter(tail(progress, 4096)[-1:]), None))

    def stage(entry: str, workers: int = 1) -> Outcome:
        program = stage_command(entry, logs)
        return job.run(program, workers=workers, job=seat.job, log_dir=logs, launcher=launcher, on_poll=tell)

    try:
        if spec.program is None:
            outcome = stage(spec.name, spec.workers)
        else:
            from pipeline.engines import program

            outcome = program.run(spec, seat, launcher, stage, tell)
        tell()
    except ProcessFailed as error:
        tell()
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
    """What the logs of a failed stage say; nothing where the stage has named its cause itself."""
    from launch.diagnose.diagnosis import diagnose  # here: a run that succeeds need not load it
    from launch.diagnose.failures import TOLD

    diagnosed = diagnose(logs)
    first = diagnosed.first
    return diagnosed.lines() if first is not None and first.failure is not TOLD else []


def _spec_file(
    spec: StageSpec,
    store: Store,
    seat: Attempt,
    progress: Path,
    run_started: float,
    viewed: Mapping[str, Path],
    command: Sequence[str] | None,
) -> dict[str, Any]:
    # The report tells what differs from the defaults, which are code like its templates, and which stages
    # came from the store; a model card tells the command. They make it no other report and no other model,
    # hence they are no part of the spec.
    besides: dict[str, Any] = {}
    if spec.name == "export" and command is not None:
        besides = {"command": list(command)}
    elif spec.name == "report":
        besides = {"defaults": load([]).plain(), "run_started": run_started}
    return {
        "stage": spec.name,
        "config": {**spec.config, **besides},
        "inputs": {name: str(viewed.get(key.stage, store.path(key))) for name, key in spec.inputs.items()},
        "output": str(seat.staging),
        "work": str(seat.work),
        "progress_file": str(progress),
    }


def _versions() -> dict[str, str]:
    versions = {}
    for package in RECORDED:
        with contextlib.suppress(PackageNotFoundError):
            versions[package] = version(package)
    return versions


def _git_commit() -> str | None:
    """Commit of grpoflow's own checkout; None when it is installed without one."""
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
