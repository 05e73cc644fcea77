"""Stages that an external program computes: its files, launch, monitoring and results."""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from launch.config import LauncherConfig
from launch.errors import LaunchError
from launch.nodes import run as nodes
from launch.nodes.start import Start
from launch.process.child import Outcome
from pipeline.plan.process import inputs_of, module_of
from stages.base.context import Context, append_warning, progress_line
from stages.base.follow import Silence
from stages.base.reader import read
from stages.engines.outside import START_FILE, Module, Report, Watcher, read_start
from stages.grpo.metrics import StepLog, read_rows

if TYPE_CHECKING:
    from pipeline.plan.graph import Plan, StageSpec
    from pipeline.store.attempt import Attempt
    from pipeline.store.store import Store

SCRIPTS = "launch"
"""Directory of the start scripts in the work directory."""
StageProcess = Callable[[str], Outcome]


def run(
    spec: StageSpec, slot: Attempt, launcher: LauncherConfig, stage: StageProcess, on_poll: Callable[[], None]
) -> Outcome:
    """Prepare the program's files, run and watch it, and collect its results.

    Raises:
        LaunchError: one of these steps failed, or no log grew for the section's silence_timeout_s.
    """
    assert spec.stage.program is not None
    module, section = module_of(spec), spec.stage.program.section
    work, logs = slot.work, next_logs(slot.logs)
    logs.mkdir()
    _add_unwatched_steps(module, spec, work, logs)
    prepared = stage(f"{module.__name__}:prepare")
    planned = {**read_start(work), "logs": str(logs)}
    (work / START_FILE).write_text(json.dumps(planned, indent=1), encoding="utf-8")
    watch = _watcher(module, spec, logs, work, _progress(slot.logs / "progress.jsonl", module))
    silence, limit_s = Silence(logs), spec.config[section]["silence_timeout_s"]

    def read_logs(ended: bool = False) -> None:
        watch.poll()
        for warning in watch.take_warnings(ended):
            append_warning(slot.logs, warning)

    def poll() -> None:
        read_logs()
        on_poll()
        if limit_s is not None and silence.seconds() > limit_s:
            hung = f"hung: no worker wrote a line for {limit_s:.0f} s, logs {logs}"
            raise LaunchError(f"{hung}; raise {section}.silence_timeout_s if that is normal here")

    try:
        program = nodes.run(
            read(Start, planned["start"], "start"),
            job=slot.job,
            directory=work / SCRIPTS,
            logs=logs,
            launcher=launcher,
            on_poll=poll,
        )
    except BaseException:
        with contextlib.suppress(Exception):  # the run's own error matters more than one of its logs
            read_logs(ended=True)
        raise
    read_logs(ended=True)
    collected = stage(f"{module.__name__}:collect")
    peak = max(outcome.peak_memory_gib for outcome in (prepared, program, collected))
    return Outcome(prepared.started, collected.ended, peak)


def next_logs(directory: Path) -> Path:
    """Return the log directory of a new attempt: msrun would overwrite the logs of the previous one."""
    numbers = [int(path.name.rpartition("_")[2]) for path in directory.glob("attempt_[0-9]*")]
    return directory / f"attempt_{1 + max(numbers, default=0)}"


def write_files(plan: Plan, store: Store) -> tuple[list[Path], bool]:
    """Write what `run` would start: the programs' files and one script per node.

    Return the scripts, and True if all their inputs are in the store; otherwise they contain future paths.
    """
    written, complete = [], True
    for spec in (spec for spec in plan.requested if spec.stage.program is not None):
        module, work, inputs = module_of(spec), store.work_dir(spec.key), inputs_of(spec, store)
        ready = all(store.problem(key) is None for key in spec.inputs.values())
        work.mkdir(parents=True, exist_ok=True)
        if ready:
            context = Context(spec.name, spec.config, inputs, work, work, work / "progress.jsonl")
            module.prepare(context)
            start = read(Start, read_start(work)["start"], "start")
        else:
            rendered = module.render(spec.config, inputs, work)
            rendered.write(work)
            start = rendered.start
        logs = store.log_dir(spec.key) / "by_hand"
        written += nodes.write(start, plan.config.launcher, work / SCRIPTS, logs)
        complete = complete and ready
    return written, complete


def _watcher(module: Module, spec: StageSpec, logs: Path, work: Path, report: Report) -> Watcher:
    """Return the module's watcher; one that shows the last line if the program reports no steps."""
    if hasattr(module, "watch"):
        return module.watch(spec.config, logs, work, report)
    return Watcher(logs / "start.log", report)


def _add_unwatched_steps(module: Module, spec: StageSpec, work: Path, logs: Path) -> None:
    """Add the steps that workers of the previous attempt logged after their watching process was killed."""
    number = int(logs.name.rpartition("_")[2])
    previous, replay = logs.with_name(f"attempt_{number - 1}"), work / "replay"
    if not previous.is_dir() or not (work / START_FILE).exists():
        return
    replay.mkdir(exist_ok=True)
    shutil.copyfile(work / START_FILE, replay / START_FILE)
    _watcher(module, spec, previous, replay, lambda step, total, message: None).poll()
    for file in replay.glob("*.jsonl"):
        known = read_rows(work / file.name)
        last = known[-1]["step"] if known else 0
        StepLog(work / file.name, last).append(row for row in read_rows(file) if row["step"] > last)
    shutil.rmtree(replay)


def _progress(file: Path, module: Module) -> Report:
    unit = getattr(module, "UNIT", "steps")

    def report(step: float, total: float, message: str) -> None:
        with file.open("a", encoding="utf-8") as stream:
            stream.write(progress_line(step, total, message, unit))

    return report
