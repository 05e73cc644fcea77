"""The sft stage of engine.sft=mindformers: its start, what its logs say, and its results.

Its artifact is a complete Hugging Face directory, which later stages read instead of the fetched one. Source
of the lines in logs: mindformers 051d65f and 1.6.0, core/callback/callback.py
(MFLossMonitor.print_output_info) and trainer/base_trainer.py (training_process).
"""

import dataclasses
import functools
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stages.base.checks import demand
from stages.base.context import Context
from stages.base.errors import InputError
from stages.engines import outside
from stages.engines.job import load_job
from stages.engines.mindformers import checkpoints
from stages.engines.mindformers.checkout import MAIN
from stages.engines.mindformers.checkpoints import Moment
from stages.engines.mindformers.files import added, arguments, finetune
from stages.engines.mindformers.job import Job, Paths
from stages.engines.mindformers.rules import problems
from stages.engines.outside import NUMBER, Rendered, Report, Row, StepWatcher, dump, make_start
from stages.grpo.metrics import read_rows
from stages.models.families import parameter_shapes
from stages.tokenize.counts import count_records
from stages.weights.convert import convert
from stages.weights.export import export
from stages.weights.outputs import complete_directory
from stages.weights.sources import open_ranks
from stages.weights.strategy.files import read_strategy
from stages.weights.strategy.stage import write_strategy

PART = "checkpoint"
HOME_UNKNOWN = "/path/to/mindformers"
"""Placeholder in the files of run --render if mindformers.home is not set."""
FINISHED = "Training Over!"
_STEP = re.compile(
    r"\{ Epoch:\[\s*(\d+)/\s*(\d+)\], step:\[\s*(\d+)/\s*(\d+)\], loss:\s*\[?\s*"
    rf"({NUMBER})(?:/\s*{NUMBER}\])?, per_step_time: (\d+)ms"
)
_NAMED = re.compile(r"(lr|overflow cond|global_norm): ([^,]+)")
_FIRST = re.compile(NUMBER)


def render(config: Mapping[str, Any], inputs: Mapping[str, Path], work: Path) -> Rendered:
    """Return the files and the start of a run that begins."""
    return rendered(Job.from_config(config), paths_of(work, inputs["tokenize"]), resume=False)


def rendered(job: Job, paths: Paths, resume: bool) -> Rendered:
    """Return the YAML file of a run and how to start it.

    A single card runs under msrun, too: mindformers' own msrun_launcher.sh would exit with 0 at once.
    """
    home = job.mindformers.home or HOME_UNKNOWN
    start = make_start(
        job.mindformers,
        (Path(home) / MAIN, *arguments(job, paths, resume)),
        paths.root,
        env={"PYTHONUNBUFFERED": "1", "HCCL_EXEC_TIMEOUT": "7200"},
        checkouts=(home,),
        workers=job.layout.train.cards,
    )
    return Rendered(start, {paths.config.name: dump(finetune(job, paths, resume), added(job))})


def prepare(context: Context) -> None:
    """Write the files of the run into context.work; a run that was stopped is resumed."""
    job = load_job(Job, context)
    demand(problems(job))
    new = paths_of(context.work, context.inputs["tokenize"])
    _remove_final_checkpoint(job, context.inputs["tokenize"], new)
    if not new.start.is_dir():
        with complete_directory(new.start) as directory:
            source, fused = context.inputs["fetch"], job.model.qkv_concat
            convert(source, directory, job.model, fused, None, progress=context.progress_in_bytes("convert"))
    moment = _move_checkpoint(new, job.layout.train.cards)
    paths = new if moment is None else resumed(job, new, moment)
    run = rendered(job, paths, resume=moment is not None)
    outside.write_start(context.work, run, new.output, resumed=moment)
    context.progress(0, 1, "begins" if moment is None else f"resumes from checkpoint {moment}", "")


def watch(config: Mapping[str, Any], logs: Path, work: Path, report: Report) -> StepWatcher:
    """Follow the last worker's log: with a pipeline, only the last stage knows the loss."""
    job = Job.from_config(config)
    reader = functools.partial(read_step, tokens=job.mindformers.batch_size * job.seq_length)
    log = logs / f"worker_{job.layout.train.cards - 1}.log"
    return StepWatcher(log, work, report, reader)


def read_step(line: str, tokens: int) -> tuple[Row, int] | None:
    """Return the metrics in a line that reports a step of `tokens` tokens, and the number of all steps."""
    match = _STEP.search(line)
    if match is None:
        return None
    epoch, epochs, step, steps = (int(match[group]) for group in range(1, 5))
    row: Row = {"step": (epoch - 1) * steps + step, "loss": float(match[5])}
    seconds = int(match[6]) / 1000
    if seconds > 0:
        row.update(step_s=seconds, tokens_per_s=tokens / seconds)
    values = dict(_NAMED.findall(line))
    for name, key in (("lr", "lr"), ("grad_norm", "global_norm")):
        if key in values and (number := _FIRST.search(values[key])):
            row[name] = float(number[0])
    if "overflow cond" in values:
        row["overflow"] = float(values["overflow cond"].strip("[] ") in ("True", "1"))
    return row, epochs * steps


def paths_of(work: Path, records: Path) -> Paths:
    """Return the paths of the files of a new run."""
    return Paths(work, records / "sft.mindrecord", work / "weights")


def _remove_final_checkpoint(job: Job, records: Path, paths: Paths) -> None:
    """Remove the final checkpoint of a run that was killed after writing it.

    Resumed from it, mindformers would have no step to train, and would write no proof of a finished run.

    Raises:
        InputError: one update takes more examples than there are; mindformers drops incomplete batches.
    """
    count, batch = count_records(records, "sft"), job.mindformers.batch_size
    if count < batch:
        raise InputError("mindformers.batch_size", batch, f"must be at most the {count} examples")
    last = Moment(job.mindformers.epochs * (count // batch), 1)  # with sink_size 1 each step is an epoch
    checkpoints.file(paths.output, PART, 0, last).unlink(missing_ok=True)


def _move_checkpoint(paths: Paths, cards: int) -> Moment | None:
    """Move the newest complete checkpoint, if any, to paths.resume, out of the directory of new ones.

    If files with the same prefix exist, MindSpore names its own sft_rank_0_1-24_1.safetensors
    (train/callback/_checkpoint.py, _chg_ckpt_file_name_if_same_exist).
    """
    parts = [PART]
    previous, new = paths.resume / PART, paths.output / PART
    if checkpoints.prepare_resume(paths.output, cards, parts) is not None:
        shutil.rmtree(previous, ignore_errors=True)
        previous.parent.mkdir(exist_ok=True)
        new.rename(previous)
    shutil.rmtree(new, ignore_errors=True)  # incomplete files of a killed run
    return checkpoints.prepare_resume(paths.resume, cards, parts)


def resumed(job: Job, paths: Paths, moment: Moment) -> Paths:
    """Return the paths of the same run, resumed from its own checkpoint.

    On one card mindformers needs a file, in a directory whose name does not begin with rank_
    (load_checkpoint_utils.py, validate_config_with_file_mode).
    """
    if job.parallel:
        return dataclasses.replace(paths, start=paths.resume / PART)
    source = checkpoints.file(paths.resume, PART, 0, moment)
    link = paths.resume / source.name
    link.unlink(missing_ok=True)
    link.symlink_to(source)
    return dataclasses.replace(paths, start=link)


def collect(context: Context) -> None:
    """Check that the run finished, and write its weights as a Hugging Face directory like the fetched one."""
    job = load_job(Job, context)
    output = paths_of(context.work, context.inputs["tokenize"]).output
    started = outside.read_start(context.work)
    moment = final_checkpoint(started, FINISHED, output, PART, job.layout.train.cards)
    strategy = context.work / "strategy"
    write_strategy(job.model, job.layout.train, strategy, "layout.train")
    stored = open_ranks(output / PART, read_strategy(strategy))  # of several checkpoints, the newest
    expected = parameter_shapes(job.model, job.model.qkv_concat)  # without Adam's moments and counters
    export(
        {name: tensor for name, tensor in stored.items() if name in expected},
        context.inputs["fetch"],
        context.output,
        job.model,
        None,
        progress=context.progress_in_bytes("export"),
    )
    rows = read_rows(context.work / "metrics.jsonl")
    for name in ("metrics.jsonl", "finetune.yaml"):
        if (context.work / name).exists():
            shutil.copyfile(context.work / name, context.output / name)
    result = {
        "steps": rows[-1]["step"] if rows else 0,
        "loss": rows[-1]["loss"] if rows else None,
        "stopped": "epochs",
        "resumed_from": started["resumed"],
        "checkpoint": str(moment),
    }
    context.write_result(result)


def final_checkpoint(
    started: Mapping[str, Any], last_line: str, root: Path, part: str, workers: int
) -> Moment:
    """Return the moment of the final checkpoint of a run, whose worker 0 logs `last_line` at its end.

    Raises:
        InputError: the line is missing, or no complete checkpoint is newer than the start.
    """
    outside.require_line(Path(started["logs"]) / "worker_0.log", last_line)
    steps = checkpoints.moments(root, part, workers)
    last = steps[-1] if steps else None
    if last is None or not outside.is_new(checkpoints.file(root, part, 0, last), started["earlier"]):
        raise InputError(root, last and str(last), "no new checkpoint of all ranks", outside.REMEDY)
    return last
