"""The grpo stage of engine=mindrlhf_one_stage: files and start of the script, before and after its run.

The script saves weights once, at its end: a run that was stopped begins again.
"""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stages.base.context import Context
from stages.base.errors import InputError
from stages.engines import outside
from stages.engines.job import load_job
from stages.engines.mindformers.files import (
    parallel_config,
    predicting,
    recompute_config,
    sampling,
    training,
)
from stages.engines.mindrlhf.job import Paths
from stages.engines.mindrlhf.stage import HOME_UNKNOWN, count_prompts
from stages.engines.mindrlhf_one_stage import entry
from stages.engines.mindrlhf_one_stage.logs import LogReader
from stages.engines.mindrlhf_one_stage.variant import ENTRY, RULES, TEMPLATE, Job
from stages.engines.model_directory import copy_model
from stages.engines.outside import Rendered, Report, StepWatcher
from stages.engines.template import fill
from stages.models.families import network_of
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
    content = files(job, paths)
    variables = content["environment"]
    if engine.mindformers_home is not None:
        variables["MINDFORMERS_PATH"] = engine.mindformers_home
    start = outside.make_start(
        engine,
        (paths.configs / "entry.py", script, values, *outside.options(content["arguments"])),
        paths.root,
        env=variables,
        checkouts=(home, engine.mindformers_home),
        workers=job.layout.train.cards,
    )
    texts = {
        "finetune.yaml": outside.dump(content["finetune"]),
        "predict.yaml": outside.dump(content["predict"]),
        values.name: json.dumps(content["grpo_config"], indent=1) + "\n",
        "entry.py": Path(entry.__file__).read_text(encoding="utf-8"),
    }
    return Rendered(start, {f"configs/{name}": text for name, text in texts.items()})


def files(job: Job, paths: Paths) -> dict[str, dict[str, Any]]:
    """Return the content of the files: grpo_config, finetune and predict; arguments and environment."""
    engine, train, rollout = job.engine, job.train, job.rollout
    sampled = sampling(rollout, engine.block_size, engine.num_blocks)
    derived = {
        "end_lr": train.learning_rate * train.final_share,
        "sync_ref_model": train.ref_model_sync_steps > 0,
        "ref_model_sync_steps": train.ref_model_sync_steps or 1,
        "training": {
            **training(job.model, job.layout.train, job.seq_length),
            "max_decode_length": rollout.max_tokens,
            "do_sample": False,
            "compute_in_2d": True,
        },
        "predicting": {
            **predicting(job.model, job.layout.generate, job.seq_length, sampled),
            "batch_size": engine.chunk_size,
            "param_init_type": job.model.param_init_type,
        },
        "arch": dict(network_of(job.model).arch),
        "train_parallel": parallel_config(job.layout.train),
        "generate_parallel": parallel_config(job.layout.generate),
        "recompute": recompute_config(job.model, job.layout.train),
    }
    return fill(TEMPLATE, job, paths, derived)


def prepare(context: Context) -> None:
    """Write all files of the run into context.work."""
    job = load_job(Job, context)
    RULES.demand(job)
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
