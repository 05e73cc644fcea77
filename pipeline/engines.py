"""Stages whose work an outside program does: its files, its launch, the watch over it, its results."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from launch import engine
from launch.config import LauncherConfig
from launch.errors import EnvironmentProblem
from launch.process import Outcome
from launch.scripts import EngineStart
from pipeline.errors import ConfigError, Problem
from stages.config import read
from stages.context import Context, progress_line

if TYPE_CHECKING:
    from pipeline.attempt import Attempt
    from pipeline.config import Config
    from pipeline.graph import Plan, StageSpec
    from pipeline.store import Store

Stage = Callable[[str], Outcome]


def refuse(config: Config) -> None:
    """Say what a run needs that plan and --dry-run do without.

    Raises:
        ConfigError: the engine's program is not named, or needs more machines than the launcher has.
    """
    if config.engine.name != "mindrlhf":
        return
    problems = []
    if config.engine.mindrlhf_home is None:
        rule = "is required to run: a checkout of mindspore-ai/mindrlhf"
        problems.append(Problem("engine.mindrlhf_home", None, rule, "clone it and give its directory"))
    launcher, nodes = config.launcher, len(engine.nodes_of(config.cards, config.launcher))
    if launcher.name == "local" and nodes > 1:
        rule = f"needs {nodes} nodes of launcher.cards_per_node={launcher.cards_per_node} cards"
        problems.append(Problem("cards", config.cards, rule, "choose launcher=ssh or launcher=slurm"))
    if launcher.name == "ssh" and len(engine.hosts_of(launcher)) < nodes:
        rule = f"must name {nodes} machines for cards={config.cards}"
        problems.append(Problem("launcher.hosts", engine.hosts_of(launcher), rule, "or give hosts_file"))
    if launcher.name == "ssh" and config.engine.container:
        rule = "is for launcher=local: with ssh, name hosts that are inside the containers"
        problems.append(Problem("engine.container", list(config.engine.container), rule))
    if problems:
        raise ConfigError(problems)
    _look_at_nodes(config)


def _look_at_nodes(config: Config) -> None:
    """Ask the machines of launcher=ssh for what a run needs, before hours are spent on its inputs."""
    own = config.engine
    if config.launcher.name != "ssh" or own.name != "mindrlhf":
        return
    named = (own.python, own.mindrlhf_home, own.mindformers_home, own.msadapter_home, *own.env_scripts)
    paths = [path for path in named if path is not None]
    store = Path(config.store).absolute()
    lacking = engine.lacking(config.launcher, config.cards, paths, store)
    if lacking:
        raise EnvironmentProblem("\n".join(line.removeprefix("error: ") for line in lacking))


def command(spec: StageSpec, store: Store, launcher: LauncherConfig) -> list[str]:
    """The line that the first node's script ends in."""
    from stages.mindrlhf.job import Job
    from stages.mindrlhf.stage import places_of
    from stages.mindrlhf.start import start

    job = Job.of(spec.config)
    places = places_of(job, store.work_dir(spec.key), _dataset(spec, store))
    return engine.first_line(read(EngineStart, asdict(start(job, places)), "start"), launcher)


def run(
    spec: StageSpec, seat: Attempt, launcher: LauncherConfig, stage: Stage, tell: Callable[[], None]
) -> Outcome:
    """Prepare, launch and watch, collect.

    Args:
        spec: the stage.
        seat: the attempt, with its work directory and logs.
        launcher: how processes run.
        stage: runs `python -m stages NAME spec.json`.
        tell: shows the latest progress line.

    Raises:
        LaunchError: one of the three ended badly.
    """
    from stages.mindrlhf.job import Job
    from stages.mindrlhf.watch import Watcher

    began = stage(f"{spec.engine}_prepare")
    work, logs = seat.work, _attempt(seat.logs)
    plan_file = work / "start.json"
    planned = {**json.loads(plan_file.read_text(encoding="utf-8")), "logs": str(logs)}
    plan_file.write_text(json.dumps(planned, indent=1), encoding="utf-8")
    settings = Job.of(spec.config)
    watcher = Watcher(logs, work, settings, _progress(seat.logs / "progress.jsonl"))

    def poll() -> None:
        watcher.poll()
        tell()

    try:
        middle = engine.run(
            read(EngineStart, planned["start"], "start"),
            job=seat.job,
            directory=_scripts(work),
            logs=logs,
            launcher=launcher,
            on_poll=poll,
            silent_s=watcher.silent_s,
            silence_timeout_s=settings.engine.silence_timeout_s,
        )
    finally:
        watcher.poll(ended=True)
    ended = stage(f"{spec.engine}_collect")
    peak = max(began.peak_memory_gib, middle.peak_memory_gib, ended.peak_memory_gib)
    return Outcome(began.started, ended.ended, peak)


def write_files(plan: Plan, store: Store) -> tuple[list[Path], bool]:
    """Write what `run` would start: the engine's YAML files and one script per node. Starts nothing.

    Returns:
        The scripts, and whether what they read is there: inputs that are not in the store yet are named
        where they will be.
    """
    from pipeline.rules import mindrlhf_job
    from stages.mindrlhf.stage import PLAN_FILE, places_of, prepare
    from stages.mindrlhf.start import start, write_configs

    spec = next(spec for spec in plan.specs if spec.engine is not None)
    work, logs = store.work_dir(spec.key), store.log_dir(spec.key)
    inputs = {name: store.path(key) for name, key in spec.inputs.items()}
    ready = all(store.problem(key) is None for key in spec.inputs.values())
    work.mkdir(parents=True, exist_ok=True)
    if ready:
        prepare(Context(spec.name, spec.config, inputs, work, work, work / "progress.jsonl"))
        values = json.loads((work / PLAN_FILE).read_text(encoding="utf-8"))["start"]
    else:
        job = mindrlhf_job(plan.config)
        places = places_of(job, work, _dataset(spec, store))
        write_configs(job, places)
        values = asdict(start(job, places))
    begun = read(EngineStart, values, "start")
    return engine.write(begun, plan.config.launcher, _scripts(work), logs / "by_hand"), ready


def _dataset(spec: StageSpec, store: Store) -> Path:
    return store.path(spec.inputs["tokenize"]) / "train.mindrecord"


def _scripts(work: Path) -> Path:
    return work / "launch"


def _attempt(logs: Path) -> Path:
    """A directory of its own for each attempt: msrun would overwrite the last one's logs."""
    number = 1 + len(list(logs.glob("attempt_*")))
    path = logs / f"attempt_{number}"
    path.mkdir()
    return path


def _progress(file: Path) -> Callable[[float, float, str], None]:
    def tell(step: float, total: float, message: str) -> None:
        with file.open("a", encoding="utf-8") as stream:
            stream.write(progress_line(step, total, message, "step"))

    return tell
