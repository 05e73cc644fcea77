"""Stage grpo of engine=areal: python -m grpoflow_areal.driver, which starts AReaL's PPOTrainer."""

import dataclasses
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stages.base.checks import demand
from stages.base.context import Context
from stages.engines import scoring
from stages.engines.areal import files, results
from stages.engines.areal.job import METRICS, PROGRAMS, RECIPE, TASK, TRAIN_DATA, Job, Paths
from stages.engines.areal.rules import problems
from stages.engines.model_directory import copy_model
from stages.engines.outside import (
    Rendered,
    Report,
    StepWatcher,
    import_run,
    link_or_copy,
    make_start,
    read_start,
    write_start,
)
from stages.grpo.metrics import StepLog
from stages.tokenizer import special_ids

PROGRAM = ("-m", "grpoflow_areal.driver")
CPU_VARIABLE = "GRPOFLOW_AREAL_CPU"
"""Variable by which AReaL's workers start grpoflow's server (programs/grpoflow_areal/worker.py)."""
MODEL = "model"
"""Directory of the trained model in the artifact."""


def render(config: Mapping[str, Any], inputs: Mapping[str, Path], work: Path) -> Rendered:
    """Return the rendered files and the start; the driver decides whether it resumes."""
    return _rendered(Job.from_config(config), inputs, work)


def _rendered(job: Job, inputs: Mapping[str, Path], work: Path) -> Rendered:
    paths = paths_of(inputs, work)
    configuration, task = f"configs/{RECIPE}.yaml", f"configs/{TASK}"
    texts = {configuration: files.text(job, paths), task: files.task(job, paths), **scoring.copies()}
    command = (*PROGRAM, str(work / task), "--config", str(work / configuration))
    environment = files.variables(job, paths) | ({CPU_VARIABLE: "1"} if job.on_cpu else {})
    more: dict[str, Any] = {"workers": 0}
    if job.on_ray:
        more = {"workers": job.cards, "ray": job.engine.cluster()}
    start = make_start(job.engine, command, work, environment, [str(PROGRAMS), job.engine.areal_home], **more)
    return Rendered(start, texts)


def paths_of(inputs: Mapping[str, Path], work: Path) -> Paths:
    """Return the paths of a run."""
    return Paths(work, inputs["tokenize"] / TRAIN_DATA)


def prepare(context: Context) -> None:
    """Write all files of the run, and choose the state from which it resumes."""
    job, paths = Job.from_config(context.config), paths_of(context.inputs, context.work)
    demand(problems(job))
    ends = special_ids(context.inputs["fetch"], job.model).eos
    job = dataclasses.replace(job, model=dataclasses.replace(job.model, eos_token_id=tuple(ends)))
    copy_model(context.inputs["fetch"], paths.model)
    scoring.write_code(context)
    scoring.write_columns(context, job.reward, context.inputs["tokenize"] / TRAIN_DATA)
    step = results.prepare_resume(paths.checkpoints, job.train.steps)
    for log in (context.work / scoring.REPORT, paths.completions):
        StepLog(log, step or 0)  # drops rows of steps that are trained again
    shutil.rmtree(paths.final, ignore_errors=True)
    write_start(context.work, _rendered(job, context.inputs, context.work), resumed=step)
    context.progress(0, 1, "starts" if step is None else f"resumes after step {step}", "")


class Watcher(StepWatcher):
    """Reads the driver's file of metrics."""

    def __init__(self, log: Path, work: Path, job: Job, report: Report) -> None:
        super().__init__(log, work, report)
        self._steps = job.train.steps

    def read(self, line: str) -> None:
        """Process the metrics of one step."""
        if row := self.parse(results.read_metrics, line):
            self.add(row, self._steps)


def watch(config: Mapping[str, Any], logs: Path, work: Path, report: Report) -> Watcher:
    """Follow a run."""
    return Watcher(logs / f"{METRICS}.jsonl", work, Job.from_config(config), report)


def collect(context: Context) -> None:
    """Check that the run finished; import model, metrics, completions and configuration."""
    job, paths = Job.from_config(context.config), paths_of(context.inputs, context.work)
    scoring.check_rewards(context, job.reward, job.samples)
    results.check_steps(context.work / "metrics.jsonl", job.train.steps)
    results.check_model(paths.final)
    target = context.output / MODEL
    target.mkdir()
    for file in sorted(paths.final.iterdir()):
        link_or_copy(file, target / file.name)
    usage = scoring.total_usage(context.work)
    more = {"usage": usage} if usage else {}
    import_run(context, read_start(context.work)["resumed"], MODEL, job.engine.contract, **more)
