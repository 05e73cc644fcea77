"""Stage grpo of engine=mindspeed_rl: cli/train_grpo.py on a Ray cluster."""

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stages.base.context import Context
from stages.base.errors import InputError
from stages.engines.mindspeed_rl import checkpoints
from stages.engines.mindspeed_rl.job import Job, Paths, paths_of
from stages.engines.mindspeed_rl.logs import DRIVER_LOG, Iteration, TrainWatcher, read_line
from stages.engines.mindspeed_rl.rules import RULES
from stages.engines.mindspeed_rl.start import CONFIG_NAME
from stages.engines.mindspeed_rl.start import train as start
from stages.engines.mindspeed_rl.tokenize import PREFIX, data_files
from stages.engines.mindspeed_rl.train_yaml import runtime_env, train_config
from stages.engines.model_directory import copy_model
from stages.engines.outside import Rendered, Report, dump, import_run, is_new, read_start, write_start
from stages.grpo.metrics import read_rows


def render(config: Mapping[str, Any], inputs: Mapping[str, Path], work: Path) -> Rendered:
    """Return the YAML files and the start of a new run."""
    return _rendered(Job.from_config(config), paths_of(work), resume=False)


def _rendered(job: Job, paths: Paths, resume: bool) -> Rendered:
    """Return YAML files and start; a resumed run differs only in its YAML."""
    files = {CONFIG_NAME: train_config(job, paths, resume), "runtime_env": runtime_env(job)}
    added = {CONFIG_NAME: job.engine.upstream}
    texts = {f"configs/{name}.yaml": dump(values, added.get(name)) for name, values in files.items()}
    return Rendered(start(job, paths), texts)


def watch(config: Mapping[str, Any], logs: Path, work: Path, report: Report) -> TrainWatcher:
    """Follow a run."""
    return TrainWatcher(logs, work, Job.from_config(config), report)


def prepare(context: Context) -> None:
    """Write all files of the run into context.work, or those that resume an interrupted run."""
    job, paths = Job.from_config(context.config), paths_of(context.work)
    RULES.demand(job)
    copy_model(context.inputs["fetch"], paths.tokenizer)
    copy_model(context.inputs["weights"] / "mcore", paths.weights)
    _link_data(context.inputs["tokenize"] / PREFIX, paths.data.parent)
    iteration = _resumed(job, paths)
    rendered = _rendered(job, paths, resume=iteration is not None)
    write_start(context.work, rendered, paths.checkpoints, resumed=iteration)
    context.progress(0, 1, "starts" if iteration is None else f"resumes after iteration {iteration}", "")


def _link_data(prefix: Path, target: Path) -> None:
    """Link the training data, because PromptDataset writes an index next to it.

    Source: mindspeed_rl/datasets/utils.py, _build_index_mappings.
    """
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    for file in data_files(prefix):
        if not file.is_file():
            raise InputError(file, None, "is missing", "run the stage that wrote it again")
        (target / file.name).symlink_to(file.resolve())


def _resumed(job: Job, paths: Paths) -> int | None:
    """Return the iteration after which the run resumes; None if it starts from the beginning.

    If the last iteration was saved, but its metrics were not read before the kill, it is repeated: otherwise
    upstream would log nothing that proves the end.
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
    """Check that the run finished; import weights, metrics and configuration."""
    job, paths = Job.from_config(context.config), paths_of(context.work)
    record = read_start(context.work)
    if record["resumed"] == job.train.steps and _was_reported(context.work, job.train.steps):
        directory = checkpoints.directory(paths.checkpoints, job.train.steps)  # finished before it was killed
    else:
        directory = _final_checkpoint(Path(record["logs"]), paths.checkpoints, job, record["earlier"])
    checkpoints.import_weights(directory, context.output / "mcore", job.actor)
    import_run(context, record["resumed"], directory.name, job.version)


def _final_checkpoint(logs: Path, root: Path, job: Job, earlier: Mapping[str, list[int]]) -> Path:
    """Return the final checkpoint, after checking that log and tracker report the last iteration."""
    remedy = "read the log; repeat the command to resume from the last checkpoint"
    last, total = _last_iteration(logs / DRIVER_LOG, job.npus), job.train.steps
    if last is None or (last.number, last.total) != (total, total):
        progress = None if last is None else f"{last.number} / {last.total}"
        rule = f'must end with "iteration: {total} / {total}", the proof of a finished run'
        raise InputError(logs / DRIVER_LOG, progress, rule, remedy)
    tracker_file, tracker = root / checkpoints.TRACKER, checkpoints.tracked(root)
    if tracker != str(total) or not is_new(tracker_file, earlier):
        raise InputError(tracker_file, tracker, f"must be new and name iteration {total}", remedy)
    directory = checkpoints.directory(root, total)
    if fault := checkpoints.defect(directory, job.actor, job.actor.enable_parallel_optimizer):
        raise InputError(directory, None, f"is no complete checkpoint: {fault}", remedy)
    return directory


def _last_iteration(log: Path, cards: int) -> Iteration | None:
    """Return the last iteration in a log, which may be long."""
    last = None
    if log.exists():
        with log.open(encoding="utf-8", errors="replace") as lines:
            for line in lines:
                last = read_line(line, cards) or last
    return last
