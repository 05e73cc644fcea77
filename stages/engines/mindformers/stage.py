"""The sft stage of engine.sft=mindformers, before and after the run itself.

Its result is a complete Hugging Face directory: what follows reads it where it would read the fetched one,
whichever engine runs grpo.
"""

import dataclasses
import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from launch.nodes.start import Start
from stages.base.context import Context
from stages.base.errors import InputError
from stages.engines.job import job_of
from stages.engines.mindformers import checkpoints
from stages.engines.mindformers.checkpoints import Moment
from stages.engines.mindformers.job import Job, Paths
from stages.engines.mindformers.logs import FINISHED, Watcher
from stages.engines.mindformers.proof import prove
from stages.engines.mindformers.rules import RULES
from stages.engines.mindformers.start import start, write_config
from stages.engines.outside import Report, begun, write_start
from stages.grpo.metrics import read_rows
from stages.models.families import parameter_shapes
from stages.weights.convert import convert
from stages.weights.export import export
from stages.weights.outputs import complete_directory
from stages.weights.progress import to_context
from stages.weights.slicing import read_strategy
from stages.weights.sources import open_ranks
from stages.weights.strategy.stage import write_strategy

PART = "checkpoint"


def prepare(context: Context) -> None:
    """Write all files of the run into context.work; a run that was stopped is continued."""
    job = job_of(Job, context)
    RULES.demand(job)
    fresh = paths_of(context.work, context.inputs["tokenize"])
    _forget(_last(job, context.inputs["tokenize"]), fresh)
    if not fresh.start.is_dir():
        with complete_directory(fresh.start) as directory:
            source, fused = context.inputs["fetch"], job.model.qkv_concat
            convert(source, directory, job.model, fused, None, progress=to_context(context, "convert"))
    moment = _set_aside(fresh, job.layout.cards)
    paths = fresh if moment is None else resumed(job, fresh, moment)
    write_config(job, paths, resume=moment is not None)
    (context.work / "run").mkdir(exist_ok=True)
    resumed_from = None if moment is None else [moment.epoch, moment.step]
    write_start(
        context.work, start(job, paths, resume=moment is not None), fresh.output, resumed=resumed_from
    )
    context.progress(0, 1, "begins" if moment is None else f"goes on from checkpoint {moment}", "")


def fresh(config: Mapping[str, Any], inputs: Mapping[str, Path], work: Path) -> Start:
    """Return how to start a new run."""
    return start(Job.of(config), paths_of(work, inputs["tokenize"]), resume=False)


def write_files(config: Mapping[str, Any], inputs: Mapping[str, Path], work: Path) -> None:
    """Write the YAML file of such a run."""
    write_config(Job.of(config), paths_of(work, inputs["tokenize"]), resume=False)


def watch(config: Mapping[str, Any], logs: Path, work: Path, report: Report) -> Watcher:
    """Follow a run."""
    return Watcher(logs, work, Job.of(config), report)


def paths_of(work: Path, records: Path) -> Paths:
    """Return the paths of the files of a new run."""
    return Paths(work, records / "sft.mindrecord", work / "weights")


def _last(job: Job, records: Path) -> Moment:
    """Return the moment of the run's last checkpoint: with sink_size 1 each step counts as an epoch.

    Raises:
        InputError: one update takes more examples than there are; mindformers drops a batch that is not full.
    """
    count = json.loads((records / "result.json").read_text(encoding="utf-8"))["files"]["sft"]["records"]
    batch = job.mindformers.batch_size
    if count < batch:
        raise InputError("mindformers.batch_size", batch, f"must be at most the {count} examples")
    return Moment(job.mindformers.epochs * (count // batch), 1)


def _forget(last: Moment, paths: Paths) -> None:
    """Forget the last checkpoint of a run that did not live to say its end.

    Without a step to train, mindformers would neither do so now nor write anything new.
    """
    checkpoints.file(paths.output, PART, 0, last).unlink(missing_ok=True)


def _set_aside(paths: Paths, cards: int) -> Moment | None:
    """Move the checkpoint to go on from out of the place where new ones appear.

    Beside files of the same prefix MindSpore would give its own another name: sft_rank_0_1-24_1.safetensors
    (train/callback/_checkpoint.py, _chg_ckpt_file_name_if_same_exist).

    Returns:
        The newest moment of which every rank has a whole file; None: there is none.
    """
    parts = [(PART,)]
    aside, new = paths.aside / PART, paths.output / PART
    if checkpoints.prepare_resume(paths.output, cards, parts) is not None:
        shutil.rmtree(aside, ignore_errors=True)
        aside.parent.mkdir(exist_ok=True)
        new.rename(aside)
    shutil.rmtree(new, ignore_errors=True)  # what a kill cut off
    return checkpoints.prepare_resume(paths.aside, cards, parts)


def resumed(job: Job, paths: Paths, moment: Moment) -> Paths:
    """Return the paths of the same run, resumed from its own checkpoint.

    On one card mindformers takes a file, of a directory whose name does not begin with rank_
    (load_checkpoint_utils.py, validate_config_with_file_mode).
    """
    if job.parallel:
        return dataclasses.replace(paths, start=paths.aside / PART)
    source = checkpoints.file(paths.aside, PART, 0, moment)
    link = paths.aside / source.name
    link.unlink(missing_ok=True)
    link.symlink_to(source)
    return dataclasses.replace(paths, start=link)


def collect(context: Context) -> None:
    """Prove that the run finished, and write its weights as a Hugging Face directory like the fetched one."""
    job = job_of(Job, context)
    start = begun(context.work)
    output = paths_of(context.work, context.inputs["tokenize"]).output
    moment = prove(Path(start["logs"]), FINISHED, output, PART, job.layout.cards, start["earlier"])
    strategy = context.work / "strategy"
    write_strategy(job.model, job.layout, strategy, "layout.train")
    stored = open_ranks(output / PART, read_strategy(strategy))  # of several checkpoints, the newest
    expected = parameter_shapes(job.model, job.model.qkv_concat)  # not Adam's moments and counters
    export(
        {name: tensor for name, tensor in stored.items() if name in expected},
        context.inputs["fetch"],
        context.output,
        job.model,
        None,
        progress=to_context(context, "export"),
    )
    rows = read_rows(context.work / "metrics.jsonl")
    for name in ("metrics.jsonl", "finetune.yaml"):
        if (context.work / name).exists():
            shutil.copyfile(context.work / name, context.output / name)
    result = {
        "steps": rows[-1]["step"] if rows else 0,
        "loss": rows[-1]["loss"] if rows else None,
        "stopped": "epochs",
        "resumed_from": start["resumed"],
        "checkpoint": str(moment),
    }
    context.write_result(result)
