"""The grpo stage of engine=mindrlhf_one_stage: start, preparation, and results of a run.

The script saves weights once, at its end: a run that was stopped begins again.
"""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stages.base.checks import demand
from stages.base.context import Context
from stages.base.errors import InputError
from stages.engines import outside
from stages.engines.job import load_job
from stages.engines.mindrlhf.job import Paths
from stages.engines.mindrlhf.stage import HOME_UNKNOWN, count_prompts
from stages.engines.mindrlhf_one_stage import entry
from stages.engines.mindrlhf_one_stage.files import arguments, environment, finetune, grpo_config, predict
from stages.engines.mindrlhf_one_stage.job import ENTRY, Job
from stages.engines.mindrlhf_one_stage.logs import LogReader
from stages.engines.mindrlhf_one_stage.rules import problems
from stages.engines.model_directory import copy_model
from stages.engines.outside import Rendered, Report, StepWatcher
from stages.weights.ckpt import read_ckpt
from stages.weights.strategy.stage import write_strategy


def render(config: Mapping[str, Any], inputs: Mapping[str, Path], work: Path) -> Rendered:
    """Return the files of a run and how to start it."""
    return rendered(Job.from_config(config), paths_of(work, inputs))


def paths_of(work: Path, inputs: Mapping[str, Path]) -> Paths:
    """Return the paths of a run's files; the reference is laid out as the generation."""
    models, dataset = work / "models", inputs["tokenize"] / "train.mindrecord"
    return Paths(work, dataset, inputs["fetch"], models / "train", models / "generate", models / "generate")


def rendered(job: Job, paths: Paths) -> Rendered:
    """Return the model files, the hyper-parameters, the program that installs them, and the start."""
    engine = job.engine
    home = engine.mindrlhf_home or HOME_UNKNOWN
    script, values = Path(home) / ENTRY, paths.configs / "grpo_config.json"
    start = outside.make_start(
        engine,
        (paths.configs / "entry.py", script, values, *outside.options(arguments(job, paths))),
        paths.root,
        env=environment(job),
        checkouts=(home, engine.mindformers_home),
        workers=job.layout.train.cards,
    )
    texts = {
        "finetune.yaml": outside.dump(finetune(job)),
        "predict.yaml": outside.dump(predict(job)),
        values.name: json.dumps(grpo_config(job), indent=1) + "\n",
        "entry.py": Path(entry.__file__).read_text(encoding="utf-8"),
    }
    return Rendered(start, {f"configs/{name}": text for name, text in texts.items()})


def prepare(context: Context) -> None:
    """Write all files of the run into context.work."""
    job = load_job(Job, context)
    demand(problems(job))
    paths = paths_of(context.work, context.inputs)
    for role in job.roles:
        copy_model(context.inputs["weights"] / role, context.work / "models" / role)
    shutil.rmtree(paths.checkpoints, ignore_errors=True)
    for name in ("strategy", "merge_strategy"):  # siblings of its working directory, into which it writes
        (context.work / name).mkdir(exist_ok=True)
    steps = job.steps(count_prompts(job, context.inputs["tokenize"]))
    outside.write_start(context.work, rendered(job, paths), steps=steps)
    context.progress(0, 1, "begins", "")


def watch(config: Mapping[str, Any], logs: Path, work: Path, report: Report) -> StepWatcher:
    """Follow the last worker's log: all generate and score the same, only the last stage knows the loss."""
    job, reader = Job.from_config(config), LogReader(outside.read_start(work)["steps"])
    log = logs / f"worker_{job.layout.train.cards - 1}.log"
    return StepWatcher(log, work, report, reader.read)


def collect(context: Context) -> None:
    """Import weights, strategy and metrics; raises InputError if a rank has no file of the last epoch."""
    job, files = load_job(Job, context), []
    for rank in range(job.layout.train.cards):
        name = f"train/rank_{rank}/policy_model_epoch_{job.engine.epochs}.ckpt"
        file = context.work / "checkpoints" / name
        if not file.is_file():
            rule = "ended with exit code 0, but wrote no checkpoint, the only proof of a finished run"
            raise InputError(file, None, rule, outside.REMEDY)
        read_ckpt(file)  # raises InputError if it is incomplete
        files.append(file)
    outside.import_ranks(files, context.output)
    write_strategy(job.model, job.layout.train, context.output / "train_strategy", "layout.train")
    outside.import_run(context, None, files[0].stem, job.engine.contract)
