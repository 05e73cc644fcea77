"""The grpo stage of engine=mindrlhf: start, preparation, and results of a run."""

import dataclasses
import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stages.base.checks import demand
from stages.base.context import Context
from stages.base.errors import InputError
from stages.engines.job import load_job
from stages.engines.mindformers import checkpoints
from stages.engines.mindformers.stage import final_checkpoint
from stages.engines.mindrlhf.files import (
    RESUME_CONFIG,
    added,
    all_configs,
    arguments,
    environment,
    grpo_config,
)
from stages.engines.mindrlhf.job import Job, MindrlhfJob, Paths
from stages.engines.mindrlhf.logs import FINISHED, Watcher
from stages.engines.mindrlhf.rules import problems
from stages.engines.model_directory import add_index, copy_model
from stages.engines.outside import (
    Rendered,
    Report,
    dump,
    import_ranks,
    import_run,
    make_start,
    read_start,
    write_start,
)
from stages.rewards.functions import holds_number
from stages.tokenize.counts import count_records
from stages.tokenize.records import read_columns
from stages.tokenizer import load
from stages.weights.strategy.stage import write_strategy

COMPARING_NUMBERS = ("qwen_accuracy", "accuracy")
"""Rewards that compare an answer with the first number of the ground truth."""
HOME_UNKNOWN = "/path/to/mindrlhf"
"""Placeholder in the files of run --render if engine.mindrlhf_home is not set."""
NOT_LOGGED = (
    "KL and clip share: no known mindrlhf tells them (e8a8fc1 dies of enable_full_monitor, "
    "grpo_models.py:377; 0cd087455 has no such key)"
)
"""Note for the report about metrics that are missing."""


def render(config: Mapping[str, Any], inputs: Mapping[str, Path], work: Path) -> Rendered:
    """Return the files of a run and how to start it."""
    job = Job.from_config(config)
    return rendered(job, paths_of(job, work, inputs["tokenize"] / "train.mindrecord"))


def resumed(paths: Paths) -> Paths:
    """Return the paths of the same run, resumed from its own checkpoints; the optimizer is next to train/."""
    root = paths.checkpoints
    return dataclasses.replace(paths, actor=root / "train", reference=root / "ref")


def rendered(job: Job, paths: Paths) -> Rendered:
    """Return the files of a run and how to start it, for the first time or after any end."""
    home = job.engine.mindrlhf_home or HOME_UNKNOWN
    main, workers = Path(home) / job.tutorial.main, job.layout.train.cards
    start = make_start(
        job.engine,
        (main, *arguments(job, paths, resume=False)),
        paths.root,
        env=environment(job, paths),
        checkouts=(home, job.engine.mindformers_home, job.engine.msadapter_home),
        workers=workers,
        # at each start this script finds the newest complete checkpoint; if there is one, `again` runs
        resumable=(str(paths.configs / "checkpoints.py"), str(paths.checkpoints), str(workers)),
        again=(str(main), *arguments(job, resumed(paths), resume=True)),
    )
    configs = all_configs(job, paths, resume=False)
    configs[RESUME_CONFIG] = grpo_config(job, resumed(paths), resume=True)  # all else is the same
    keys = added(job)
    files = {f"configs/{name}": dump(values, keys[name]) for name, values in configs.items()}
    files["configs/checkpoints.py"] = Path(checkpoints.__file__).read_text(encoding="utf-8")
    return Rendered(start, files)


def count_prompts(job: MindrlhfJob, tokenized: Path) -> int:
    """Return the number of training prompts; raises InputError if they do not fill a step."""
    count, needed = count_records(tokenized, "train"), job.train.prompts_per_step
    if count < needed:
        rule = f"must be at most the {count} training prompts: mindrlhf drops a step that they do not fill"
        raise InputError("train.prompts_per_step", needed, rule, "lower it, or take more rows")
    return count


def check_truths(job: Job, tokenized: Path, fetched: Path) -> None:
    """Raise InputError if a ground truth has no number, with which accuracy_reward (reward_fn.py) fails."""
    name = next((name for name in COMPARING_NUMBERS if name in job.reward.functions), None)
    if name is None:
        return
    ids = read_columns(tokenized / "train.mindrecord", ["pretrain_ids"])["pretrain_ids"]
    texts = load(fetched).decode_batch([row[row != job.model.token_ids.pad].tolist() for row in ids])
    if without := [text for text in texts if not holds_number(text)]:
        rule = (
            f"{len(without)} of {len(texts)} ground truths have no number, for example {without[0]!r:.60}: "
            "mindrlhf ends with an IndexError at the first of them"
        )
        raise InputError("reward.functions", name, rule, "leave these rows out, or train with another engine")


def prepare(context: Context) -> None:
    """Write all files of the run into context.work; its scripts resume a run that was stopped."""
    job = load_job(Job, context)
    demand(problems(job))
    count_prompts(job, context.inputs["tokenize"])
    check_truths(job, context.inputs["tokenize"], context.inputs["fetch"])
    paths = copy_inputs(job, context)
    write_start(context.work, rendered(job, paths), paths.checkpoints)
    moment = checkpoints.newest(paths.checkpoints, job.layout.train.cards)
    context.progress(0, 1, "begins" if moment is None else f"resumes from checkpoint {moment}", "")


def watch(config: Mapping[str, Any], logs: Path, work: Path, report: Report) -> Watcher:
    """Follow a run."""
    return Watcher(logs, work, Job.from_config(config), report)


def paths_of(job: Job, work: Path, dataset: Path) -> Paths:
    """Return the paths of the files of a new run."""
    models = work / "models"
    engine = job.engine
    if engine.load_ckpt_format == "ckpt":
        actor, reference, generate = (models / role for role in ("train", "reference", "generate"))
        return Paths(work, dataset, models / "hf", actor, reference, generate)
    weights = models / ("hf" if engine.load_ckpt_format == "hf_safetensors" else "ms")
    generate = models / "hf" if engine.use_vllm else weights  # vLLM reads Hugging Face directories only
    return Paths(work, dataset, models / "hf", weights, weights, generate)


def copy_inputs(job: Job, context: Context) -> Paths:
    """Copy the model directories, because mindrlhf writes into them."""
    models, inputs = context.work / "models", context.inputs
    copy_model(inputs["fetch"], models / "hf")
    add_index(models / "hf")
    if job.engine.load_ckpt_format == "ms_safetensors":
        copy_model(inputs["weights"], models / "ms")
    elif job.engine.load_ckpt_format == "ckpt":
        for role in ("train", "reference", "generate"):
            copy_model(inputs["weights"] / role, models / role)
    return paths_of(job, context.work, inputs["tokenize"] / "train.mindrecord")


def collect(context: Context) -> None:
    """Import weights, strategy, metrics and completions into the artifact.

    Success is FINISHED in the log and a complete last checkpoint of every worker. Without them
    final_checkpoint raises InputError, and nothing is committed.
    """
    job, root = load_job(Job, context), context.work / "checkpoints"
    workers = job.layout.train.cards
    moment = final_checkpoint(read_start(context.work), FINISHED, root, "train", workers)
    import_ranks([checkpoints.file(root, "train", rank, moment) for rank in range(workers)], context.output)
    _import_strategy(job, context)
    # written by configs/checkpoints.py at each start
    resumed = json.loads((root / checkpoints.RESUMED).read_text(encoding="utf-8"))
    import_run(context, resumed, str(moment), job.version, not_logged=NOT_LOGGED)


def _import_strategy(job: Job, context: Context) -> None:
    """Import the strategy files that mindrlhf wrote; if it wrote none, write those of the layout."""
    written = context.work / "strategy" / "train_policy_strategy"
    if written.is_dir() and len(list(written.glob("strategy_*.ckpt"))) == job.layout.train.cards:
        shutil.copytree(written, context.output / "train_strategy")
    else:
        write_strategy(job.model, job.layout.train, context.output / "train_strategy", "layout.train")
