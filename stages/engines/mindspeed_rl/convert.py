"""Stage convert of engine=mindspeed_rl: Hugging Face to mcore by its converter, sharded as layout.train."""

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stages.base.context import Context
from stages.base.layout import LayoutConfig
from stages.base.reader import read
from stages.engines.mindspeed_rl import checkpoints
from stages.engines.mindspeed_rl.job import engine_of
from stages.engines.mindspeed_rl.start import to_mcore
from stages.engines.model_directory import copy_model
from stages.engines.outside import Rendered, Report, Watcher, write_start
from stages.models.config import ModelConfig


def render(config: Mapping[str, Any], inputs: Mapping[str, Path], work: Path) -> Rendered:
    """Return how to start the converter, which reads no rendered file."""
    model = read(ModelConfig, config["model"], "model")
    layout = read(LayoutConfig, config["layout"], "layout").train
    return Rendered(to_mcore(engine_of(config), model, layout, work / "hf", work / "mcore"))


def watch(config: Mapping[str, Any], logs: Path, work: Path, report: Report) -> Watcher:
    """Follow a program that reports no steps."""
    return Watcher(logs / "start.log", engine_of(config), report)


def prepare(context: Context) -> None:
    """Lay out what the converter reads."""
    copy_model(context.inputs["fetch"], context.work / "hf")
    shutil.rmtree(context.work / "mcore", ignore_errors=True)
    write_start(context.work, render(context.config, context.inputs, context.work))


def collect(context: Context) -> None:
    """Check the result and import it."""
    layout = context.section(LayoutConfig, "layout").train
    converted = checkpoints.converted(context.work / "mcore", layout)
    checkpoints.import_weights(converted, context.output / "mcore", layout)
    result = {
        "tensor_model_parallel_size": layout.model_parallel,
        "pipeline_model_parallel_size": layout.pipeline_stage,
        "checkpoint": converted.name,
    }
    context.write_result(result)
