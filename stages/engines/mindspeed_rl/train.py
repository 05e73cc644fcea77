"""grpo of engine=mindspeed_rl: cli/train_grpo.py on a Ray cluster, from its YAML to its checkpoint."""

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stages.base.context import Context
from stages.base.errors import InputError
from stages.engines.mindspeed_rl import checkpoints
from stages.engines.mindspeed_rl.job import Job, Paths
from stages.engines.mindspeed_rl.logs import Iteration, read_line
from stages.engines.mindspeed_rl.rules import RULES
from stages.engines.mindspeed_rl.stand_ins import link_files, link_mcore
from stages.engines.mindspeed_rl.start import TRAIN_NAME
from stages.engines.mindspeed_rl.start import train as start
from stages.engines.mindspeed_rl.tokenize import PREFIX, data_files
from stages.engines.mindspeed_rl.train_yaml import runtime_env, train_config
from stages.engines.mindspeed_rl.watch import DRIVER_LOG, TrainWatcher
from stages.engines.model_directory import copy_model
from stages.engines.outside import Rendered, Report, dump, import_run, is_new, read_start, write_start
from stages.grpo.metrics import read_rows


def paths_of(work: Path) -> Paths:
    """Return the paths of a run's files."""
    return Paths(work, work / "models" / "hf", work / "models" / "mcore")


def render(config: Mapping[str, Any], inputs: Mapping[str, Path], work: Path) -> Rendered:
    """Return the YAML files and the start of a run that begins."""
    return rendered(Job.from_config(config), paths_of(work), resume=False)


def rendered(job: Job, paths: Paths, resume: bool) -> Rendered:
    """Return the training YAML, runtime_env.yaml and the start; a resumed run differs only in its YAML."""
    files = {TRAIN_NAME: train_config(job, paths, resume), "runtime_env": runtime_env(job)}
    texts = {f"configs/{name}.yaml": dump(values) for name, values in files.items()}
    return Rendered(start(job, paths), texts)


def watch(config: Mapping[str, Any], logs: Path, work: Path, report: Report) -> TrainWatcher:
    """Follow a run."""
    return TrainWatcher(logs, work, Job.from_config(config), report)


def prepare(context: Context) -> None:
    """Write all files of the run into context.work; a run that was stopped is continued."""
    job, paths = Job.from_config(context.config), paths_of(context.work)
    RULES.demand(job)
    copy_model(context.inputs["fetch"], paths.tokenizer)
    link_mcore(context.inputs["weights"] / "mcore", paths.weights)
    link_files(data_files(context.inputs["tokenize"] / PREFIX), paths.data.parent)
    iteration = _resumed(job, paths)
    run = rendered(job, paths, resume=iteration is not None)
    write_start(context.work, run, paths.checkpoints, resumed=iteration)
    context.progress(0, 1, "begins" if iteration is None else f"resumes from iteration {iteration}", "")


def _resumed(job: Job, paths: Paths) -> int | None:
    """Return the iteration from which the run resumes.

    The last one serves only if its metrics were read before the kill: without an iteration to train,
    upstream would say nothing that could prove the end.
    """
    optimizer = job.actor.enable_parallel_optimizer
    iteration = checkpoints.prepare_resume(paths.checkpoints, job.actor, optimizer)
    if iteration == job.train.steps and not _was_reported(paths.root, iteration):
        shutil.rmtree(checkpoints.directory(paths.checkpoints, iteration))
        iteration = checkpoints.prepare_resume(paths.checkpoints, job.actor, optimizer)
    return iteration


def _was_reported(work: Path, iteration: int) -> bool:
    rows = read_rows(work / "metrics.jsonl")
    return bool(rows) and rows[-1]["step"] == iteration


def collect(context: Context) -> None:
    """Prove that the run finished, and bring weights, metrics and configuration into the artifact."""
    job, paths = Job.from_config(context.config), paths_of(context.work)
    start = read_start(context.work)
    if start["resumed"] == job.train.steps and _was_reported(context.work, job.train.steps):
        directory = checkpoints.directory(paths.checkpoints, job.train.steps)  # ended before it was killed
    else:
        directory = prove(Path(start["logs"]), paths.checkpoints, job, start["earlier"])
    checkpoints.bring_home(directory, context.output / "mcore", job.actor)
    import_run(context, start["resumed"], directory.name, job.version)


def prove(logs: Path, root: Path, job: Job, earlier: Mapping[str, list[int]]) -> Path:
    """Return the final checkpoint of a run that is known to have finished.

    Raises:
        InputError: the log's last iteration is not the last one, or its checkpoint is missing, older than
            the start or not whole.
    """
    remedy = "read the log; type the same command again to go on from the last checkpoint"
    last, total = _last_iteration(logs / DRIVER_LOG, job.npus), job.train.steps
    if last is None or (last.number, last.total) != (total, total):
        progress = None if last is None else f"{last.number} / {last.total}"
        rule = f'ended, but "iteration: {total} / {total}", the proof of a finished run, is not its last one'
        raise InputError(logs / DRIVER_LOG, progress, rule, remedy)
    directory, tracker = checkpoints.directory(root, total), checkpoints.tracked(root)
    if tracker != str(total) or not is_new(root / checkpoints.TRACKER, earlier):
        raise InputError(
            root / checkpoints.TRACKER, tracker, f"must be new and name iteration {total}", remedy
        )
    fault = checkpoints.flaw(directory, job.actor, job.actor.enable_parallel_optimizer)
    if fault is not None:
        raise InputError(directory, None, f"is no whole checkpoint: {fault}", remedy)
    return directory


def _last_iteration(log: Path, cards: int) -> Iteration | None:
    """Return the last iteration in a log, which may be long."""
    last = None
    if log.exists():
        with log.open(encoding="utf-8", errors="replace") as lines:
            for line in lines:
                last = read_line(line, cards) or last
    return last
