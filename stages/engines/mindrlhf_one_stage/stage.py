"""The grpo stage of engine=mindrlhf_one_stage, before and after the run itself.

The script saves weights once, at its end: a run that was stopped begins anew.
"""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from launch.nodes.start import Start
from stages.base.context import Context
from stages.base.errors import InputError
from stages.engines.job import job_of
from stages.engines.mindrlhf_one_stage.job import ROLES, Job, Paths
from stages.engines.mindrlhf_one_stage.logs import Watcher
from stages.engines.mindrlhf_one_stage.rules import RULES
from stages.engines.mindrlhf_one_stage.start import start, write_configs
from stages.engines.model_directory import stand_in
from stages.engines.outside import Report, bring_home, bring_ranks, write_start
from stages.weights.ckpt_reader import read_ckpt
from stages.weights.strategy.stage import write_strategy


def prepare(context: Context) -> None:
    """Write all files of the run into context.work."""
    job = job_of(Job, context)
    RULES.demand(job)
    paths = paths_of(context.work, context.inputs)
    for role in ROLES:
        stand_in(context.inputs["weights"] / role, paths.weights / role)
    shutil.rmtree(paths.checkpoints, ignore_errors=True)
    for name in ("run", "strategy", "merge_strategy"):  # it writes strategies beside its working directory
        (context.work / name).mkdir(exist_ok=True)
    write_configs(job, paths)
    card = json.loads((context.inputs["tokenize"] / "result.json").read_text(encoding="utf-8"))
    write_start(context.work, start(job, paths), steps=job.steps(card["files"]["train"]["records"]))
    context.progress(0, 1, "begins", "")


def fresh(config: Mapping[str, Any], inputs: Mapping[str, Path], work: Path) -> Start:
    """Return how to start a run, which always begins from the start."""
    return start(Job.of(config), paths_of(work, inputs))


def write_files(config: Mapping[str, Any], inputs: Mapping[str, Path], work: Path) -> None:
    """Write the files that such a run reads."""
    write_configs(Job.of(config), paths_of(work, inputs))


def watch(config: Mapping[str, Any], logs: Path, work: Path, report: Report) -> Watcher:
    """Follow a run."""
    return Watcher(logs, work, Job.of(config), report)


def paths_of(work: Path, inputs: Mapping[str, Path]) -> Paths:
    """Return the paths of a run's files."""
    return Paths(work, inputs["tokenize"] / "train.mindrecord", inputs["fetch"], work / "models")


def collect(context: Context) -> None:
    """Prove that the run finished, and bring weights, strategy and metrics into the artifact."""
    job = job_of(Job, context)
    files = prove(job, context.work / "checkpoints")
    bring_ranks(files, context.output)
    write_strategy(job.model, job.layout.train, context.output / "train_strategy", "layout.train")
    bring_home(context, None, files[0].stem, job.window)


def prove(job: Job, root: Path) -> list[Path]:
    """Return the final checkpoint's files by rank; the exit code is known to be 0.

    Raises:
        InputError: a rank has no whole file of the last epoch; `prepare` left none of an earlier run.
    """
    files = []
    for rank in range(job.layout.train.cards):
        file = root / "train" / f"rank_{rank}" / f"policy_model_epoch_{job.engine.epochs}.ckpt"
        if not file.is_file():
            rule = "ended with exit code 0, but wrote no checkpoint, the only proof of a finished run"
            raise InputError(file, None, rule, "read the logs; type the same command again")
        read_ckpt(file)  # whole
        files.append(file)
    return files
