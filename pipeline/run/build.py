"""Build of one artifact: lock it, run the stage in child processes, and commit the result."""

import shutil
import socket
import subprocess
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from launch.config import LauncherConfig
from launch.diagnose.diagnosis import diagnose
from launch.diagnose.failures import GRPOFLOW_ERROR
from launch.errors import LaunchError, ProcessFailed
from launch.machine.environment import installed
from launch.process import child, job
from launch.process.child import Outcome
from launch.process.tree import end_job
from pipeline.errors import ConfigError, NoResult, StageFailed, StoreError, store_errors
from pipeline.fingerprint import cached_digest
from pipeline.plan.graph import StageSpec
from pipeline.plan.process import PROGRESS, ROOM, disk_shortage, entry_of, stage_command, write_spec
from pipeline.run import program
from pipeline.run.halving import METRICS
from pipeline.run.origin import facts
from pipeline.run.progress import Display, tail
from pipeline.store.attempt import Attempt, attempt
from pipeline.store.store import Manifest, Store
from stages.base.context import WARNINGS
from stages.rewards.planned_code import REMEDY, RULE

RECORDED = (
    "grpoflow", "mindspore", "numpy", "safetensors", "tokenizers", "luigi", "hydra-core", "modelscope-hub",
)  # fmt: skip
"""Packages whose versions the manifest contains."""
FULL_BYTES = 1 << 20
"""Free space below which the disk counts as full."""


def build(
    spec: StageSpec,
    store: Store,
    launcher: LauncherConfig,
    display: Display,
    run: str = "",
    replaces: str | None = None,
    views: Callable[[StageSpec, Path], Mapping[str, Path]] | None = None,
    check_metrics: Callable[[Path], None] = lambda metrics: None,
) -> bool:
    """Run a stage and commit its artifact; return False if another process did so in the meantime.

    The model card and the report show the record of `run` in the history. `replaces` is the manifest digest
    of an existing artifact to rebuild. `views` downloads the required files of remote-only inputs below a
    directory, and returns input stage -> directory. `check_metrics` is called with the path of metrics.jsonl
    while the stage trains, and may raise StoppedEarly, which ends it with a checkpoint where the engine can.

    Raises:
        StageFailed: the stage failed, or ended without a required file; nothing is committed, and checkpoints
            and logs are kept.
        StoreError: the store cannot be written.
    """
    with store.lock(spec.key, lambda: display.wait(spec.name)):
        if store.problem(spec.key) is None and store.manifest_digest(spec.key) != replaces:
            return False
        display.start(spec.name)
        with attempt(store, spec.key) as slot:
            end_job(slot.job, grace_s=0.0)  # processes of a killed attempt
            store.quarantine_damaged(spec.key)
            downloaded = {} if views is None else views(spec, slot.work)
            _check_inputs(spec, store, downloaded)
            _check_external(spec, store)
            if shortage := disk_shortage(spec, store):
                raise StoreError(shortage)
            inputs = {name: downloaded.get(key.stage, store.path(key)) for name, key in spec.inputs.items()}
            config = {**spec.config, **facts(spec, store, run)}
            with store_errors(store.root):  # the disk is full, or the attempt's directory was removed
                write_spec(slot.logs, spec.name, config, inputs, slot.staging, slot.work, spec.code)
                outcome = _run(spec, store, slot, launcher, display, check_metrics)
            _check_external(spec, store, ended=True)
            try:
                store.commit(slot.staging, _manifest(spec, outcome), replaces)
            except NoResult as error:
                log = slot.logs / "stage.log"
                raise StageFailed(
                    spec.name, str(error), log, child.tail(log), diagnosis(slot.logs)
                ) from error
            slot.done()
        return True


def _check_inputs(spec: StageSpec, store: Store, downloaded: Mapping[str, Path]) -> None:
    """Compare the digests of all input files, which the stage reads anyway, with their manifests.

    A damaged input is moved to quarantine, so that the next run rebuilds it; this run fails.
    """
    for name, key in spec.inputs.items():
        problem = None if key.stage in downloaded else store.problem(key, deep=True)
        if problem is not None:
            moved = store.quarantine(key)
            cause = f"its input {name} ({key}) is damaged: {problem}"
            remedy = f"moved to {moved}; repeat the command to rebuild {key.stage}"
            raise StageFailed(spec.name, f"{cause}; {remedy}", store.log_dir(spec.key), [])


def _check_external(spec: StageSpec, store: Store, ended: bool = False) -> None:
    """Raise StageFailed if the user's files and packages are not those in the fingerprint any more.

    Of a training that has ended, only the files of reward functions count: others it reads at its start.
    """
    code = spec.stage.user_code
    paths: Iterable[str] = spec.external
    if ended and spec.stage.computes:
        paths = map(str, code.external if code is not None else ())
    causes = [f"{path} {RULE}" for path in paths if not _has_digest(Path(path), spec.external[path])]
    for package, version in (code.packages if code is not None else {}).items():
        if (current := installed(package)) != version:
            causes.append(f"{package}: version {current} is installed, must be {version}, as planned")
    if causes:
        remedy = REMEDY
        if ended and spec.stage.computes:
            remedy = f"restore it to continue from the last checkpoint, or {REMEDY}"
        raise StageFailed(spec.name, f"{causes[0]}; {remedy}", store.log_dir(spec.key), [])


def _has_digest(file: Path, digest: str) -> bool:
    try:
        return cached_digest(file) == digest
    except ConfigError:
        return False


def _run(
    spec: StageSpec,
    store: Store,
    slot: Attempt,
    launcher: LauncherConfig,
    display: Display,
    check_metrics: Callable[[Path], None],
) -> Outcome:
    """Run the stage's processes and report their progress."""
    progress, warnings = slot.logs / PROGRESS, slot.logs / WARNINGS
    for file in (progress, warnings):
        file.write_text("", encoding="utf-8")
    num_reported = 0

    def report() -> None:
        nonlocal num_reported
        slot.work.stat()  # fails if somebody removed it
        *lines, _ = warnings.read_text(encoding="utf-8", errors="replace").split("\n")
        for line in lines[num_reported:]:
            display.warn(spec.name, line)
        num_reported = len(lines)
        display.progress(spec.name, next(iter(tail(progress, 4096)[-1:]), None))

    def report_and_check() -> None:
        report()
        check_metrics(slot.work / METRICS)

    def stage(entry: str, workers: int = 1, on_poll: Callable[[], None] = report) -> Outcome:
        command = stage_command(entry, slot.logs)
        return job.run(
            command, workers=workers, job=slot.job, log_dir=slot.logs, launcher=launcher, on_poll=on_poll
        )

    try:
        if spec.stage.program is None:
            outcome = stage(entry_of(spec), spec.stage.workers, report_and_check)
        else:
            outcome = program.run(spec, slot, launcher, stage, report_and_check)
        report()
        return outcome
    except ProcessFailed as error:
        report()
        if shutil.disk_usage(store.root).free < FULL_BYTES:  # the log could not be written either
            raise StageFailed(spec.name, f"{store.root}: disk full; {ROOM}", error.log, error.tail) from error
        cause = f"exit code {error.exit_code}"
        may_pass = not any(line.startswith("error: ") for line in error.tail[-3:])
        found = diagnosis(slot.logs)
        raise StageFailed(spec.name, cause, error.log, error.tail, found, may_pass) from error
    except LaunchError as error:
        found = diagnosis(slot.logs)
        raise StageFailed(spec.name, str(error), slot.logs / "stage.log", [], found, may_pass=True) from error


def diagnosis(logs: Path) -> list[str]:
    """Return the cause of a failure according to the stage's logs; empty if the stage reported it itself."""
    diagnosed = diagnose(logs)
    first = diagnosed.first
    return diagnosed.lines() if first is not None and first.failure is not GRPOFLOW_ERROR else []


def _manifest(spec: StageSpec, outcome: Outcome) -> Manifest:
    """Return the artifact's manifest, without its files."""
    versions = {package: version for package in RECORDED if (version := installed(package)) is not None}
    versions |= spec.stage.user_code.packages if spec.stage.user_code is not None else {}
    return Manifest(
        stage=spec.name,
        fingerprint=spec.key.fingerprint,
        code_version=spec.version,
        config=dict(spec.config),
        inputs={name: key.fingerprint for name, key in spec.inputs.items()},
        external=dict(spec.external),
        versions=versions,
        git_commit=_git_commit(),
        seed=spec.config.get("seed"),
        started=outcome.started,
        ended=outcome.ended,
        host=socket.gethostname(),
        peak_memory_gib=round(outcome.peak_memory_gib, 3),
        required=spec.required,
    )


def _git_commit() -> str | None:
    """Return the commit of grpoflow's checkout; None if it was not installed from a checkout."""
    root = Path(__file__).parents[2]
    if not (root / ".git").exists() or shutil.which("git") is None:
        return None
    shown = subprocess.run(["git", "-C", str(root), "rev-parse", "HEAD"], capture_output=True, text=True)
    return shown.stdout.strip() or None
