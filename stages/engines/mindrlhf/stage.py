"""The grpo stage of engine=mindrlhf, before and after the run itself: what goes in, what comes home."""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from launch.nodes.start import Start
from stages.base.context import Context
from stages.engines.job import job_of
from stages.engines.mindformers import checkpoints
from stages.engines.mindformers.proof import prove
from stages.engines.mindrlhf.job import Job, Paths
from stages.engines.mindrlhf.logs import FINISHED
from stages.engines.mindrlhf.rules import RULES
from stages.engines.mindrlhf.start import start, write_configs
from stages.engines.mindrlhf.watch import Watcher
from stages.engines.model_directory import add_index, stand_in
from stages.engines.outside import Report, begun, bring_home, bring_ranks, write_start
from stages.weights.strategy.stage import write_strategy

NOT_LOGGED = (
    "KL and clip share: no known mindrlhf tells them (e8a8fc1 dies of enable_full_monitor, "
    "grpo_models.py:377; 0cd087455 has no such key)"
)
"""Note for the report about missing logs."""


def prepare(context: Context) -> None:
    """Write all files of the run into context.work; its scripts continue a run that was stopped."""
    job = job_of(Job, context)
    RULES.demand(job)
    paths = link_inputs(job, context)
    write_configs(job, paths)
    (paths.root / "run").mkdir(exist_ok=True)
    write_start(context.work, start(job, paths), paths.checkpoints)
    moments = checkpoints.newest(paths.checkpoints, job.layout.train.cards)
    context.progress(0, 1, "begins" if moments is None else f"goes on from checkpoint {moments[0]}", "")


def fresh(config: Mapping[str, Any], inputs: Mapping[str, Path], work: Path) -> Start:
    """Return how to start a run."""
    job = Job.of(config)
    return start(job, paths_of(job, work, inputs["tokenize"] / "train.mindrecord"))


def write_files(config: Mapping[str, Any], inputs: Mapping[str, Path], work: Path) -> None:
    """Write the YAML files of a run."""
    job = Job.of(config)
    write_configs(job, paths_of(job, work, inputs["tokenize"] / "train.mindrecord"))


def watch(config: Mapping[str, Any], logs: Path, work: Path, report: Report) -> Watcher:
    """Follow a run."""
    return Watcher(logs, work, Job.of(config), report)


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


def link_inputs(job: Job, context: Context) -> Paths:
    """Stand-ins for the inputs that mindrlhf writes into."""
    paths = paths_of(job, context.work, context.inputs["tokenize"] / "train.mindrecord")
    models = context.work / "models"
    stand_in(context.inputs["fetch"], models / "hf")
    add_index(models / "hf")
    if job.engine.load_ckpt_format == "ms_safetensors":
        # where convert is skipped, the fetched directory itself holds weights under mindformers' names
        stand_in(context.inputs.get("weights", context.inputs["fetch"]), models / "ms")
    elif job.engine.load_ckpt_format == "ckpt":
        for role in ("train", "reference", "generate"):
            stand_in(context.inputs["weights"] / role, models / role)
    return paths


def collect(context: Context) -> None:
    """Prove that the run finished, and bring weights, strategy, metrics and completions into the artifact."""
    job, start = job_of(Job, context), begun(context.work)
    root, workers = context.work / "checkpoints", job.layout.train.cards
    moment = prove(Path(start["logs"]), FINISHED, root, "train", workers, start["earlier"])
    bring_ranks([checkpoints.file(root, "train", rank, moment) for rank in range(workers)], context.output)
    _strategy(job, context)
    resumed = json.loads((root / checkpoints.RESUMED).read_text(encoding="utf-8"))
    bring_home(context, resumed, str(moment), job.version, not_logged=NOT_LOGGED)


def _strategy(job: Job, context: Context) -> None:
    """Write the strategy of the weights: mindrlhf's own files if it wrote them, else the layout's."""
    written = context.work / "strategy" / "train_policy_strategy"
    if written.is_dir() and len(list(written.glob("strategy_*.ckpt"))) == job.layout.train.cards:
        shutil.copytree(written, context.output / "train_strategy")
    elif not job.tutorial.converts:
        write_strategy(job.model, job.layout.train, context.output / "train_strategy", "layout.train")
