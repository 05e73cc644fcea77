"""Stages whose work an outside program does: its files, its launch, the watch over it, its results."""

from __future__ import annotations

import importlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, cast

from launch.config import LauncherConfig
from launch.nodes import run as nodes
from launch.nodes.start import Start
from launch.process.child import Outcome
from stages.base.context import Context, progress_line
from stages.base.reader import read
from stages.engines.outside import START_FILE, Module, Tell
from stages.grpo.metrics import StepLog, read_rows

if TYPE_CHECKING:
    from pipeline.plan.graph import Plan, StageSpec
    from pipeline.store.attempt import Attempt
    from pipeline.store.store import Store

StageProcess = Callable[[str], Outcome]


def command(spec: StageSpec, store: Store, launcher: LauncherConfig) -> list[str]:
    """The line that the first node's script ends in."""
    begun = _module(spec).fresh(spec.config, _inputs(spec, store), store.work_dir(spec.key))
    return nodes.first_line(begun, launcher)


def run(
    spec: StageSpec, seat: Attempt, launcher: LauncherConfig, stage: StageProcess, tell: Callable[[], None]
) -> Outcome:
    """Prepare, launch and watch, collect.

    Raises:
        LaunchError: one of the three ended badly.
    """
    module = _module(spec)
    began = stage(f"{module.__name__}:prepare")
    work, logs = seat.work, _attempt(seat.logs)
    _catch_up(module, spec, work, logs)
    file = work / START_FILE
    planned = {**json.loads(file.read_text(encoding="utf-8")), "logs": str(logs)}
    file.write_text(json.dumps(planned, indent=1), encoding="utf-8")
    watch = module.watch(spec.config, logs, work, _progress(seat.logs / "progress.jsonl"))

    def poll() -> None:
        watch.poll()
        tell()

    try:
        middle = nodes.run(
            read(Start, planned["start"], "start"),
            job=seat.job,
            directory=_scripts(work),
            logs=logs,
            launcher=launcher,
            on_poll=poll,
            silent_s=watch.silent_s,
            silence_timeout_s=watch.silence_timeout_s,
        )
    finally:
        watch.poll(ended=True)
    ended = stage(f"{module.__name__}:collect")
    peak = max(began.peak_memory_gib, middle.peak_memory_gib, ended.peak_memory_gib)
    return Outcome(began.started, ended.ended, peak)


def write_files(plan: Plan, store: Store) -> tuple[list[Path], bool]:
    """Write what `run` would start: the programs' own files and one script per node. Starts nothing.

    Returns:
        The scripts, and whether what they read is there: inputs that are not in the store yet are named
        where they will be.
    """
    written, complete = [], True
    for spec in (spec for spec in plan.asked if spec.program is not None):
        module, work, inputs = _module(spec), store.work_dir(spec.key), _inputs(spec, store)
        ready = all(store.problem(key) is None for key in spec.inputs.values())
        work.mkdir(parents=True, exist_ok=True)
        if ready:
            context = Context(spec.name, spec.config, inputs, work, work, work / "progress.jsonl")
            module.prepare(context)
            start = read(Start, json.loads((work / START_FILE).read_text(encoding="utf-8"))["start"], "start")
        else:
            module.write_files(spec.config, inputs, work)
            start = module.fresh(spec.config, inputs, work)
        logs = store.log_dir(spec.key) / "by_hand"
        written += nodes.write(start, plan.config.launcher, _scripts(work), logs)
        complete = complete and ready
    return written, complete


def _module(spec: StageSpec) -> Module:
    assert spec.program is not None
    return cast(Module, importlib.import_module(spec.program.module))


def _inputs(spec: StageSpec, store: Store) -> dict[str, Path]:
    return {name: store.path(key) for name, key in spec.inputs.items()}


def _scripts(work: Path) -> Path:
    return work / "launch"


def _attempt(logs: Path) -> Path:
    """A directory of its own for each attempt: msrun would overwrite the last one's logs."""
    number = 1 + len(list(logs.glob("attempt_*")))
    path = logs / f"attempt_{number}"
    path.mkdir()
    return path


def _catch_up(module: Module, spec: StageSpec, work: Path, logs: Path) -> None:
    """Add what the attempt before logged after its watcher was killed: workers may have outlived it."""
    number = int(logs.name.rpartition("_")[2])
    before, replay = logs.with_name(f"attempt_{number - 1}"), work / "replay"
    if not before.is_dir():
        return
    replay.mkdir(exist_ok=True)
    shutil.copyfile(work / START_FILE, replay / START_FILE)
    module.watch(spec.config, before, replay, lambda step, total, message: None).poll(ended=True)
    for file in replay.glob("*.jsonl"):
        known = read_rows(work / file.name)
        last = known[-1]["step"] if known else 0
        StepLog(work / file.name, last).append(row for row in read_rows(file) if row["step"] > last)
    shutil.rmtree(replay)


def _progress(file: Path) -> Tell:
    def tell(step: float, total: float, message: str) -> None:
        with file.open("a", encoding="utf-8") as stream:
            stream.write(progress_line(step, total, message, "step"))

    return tell
