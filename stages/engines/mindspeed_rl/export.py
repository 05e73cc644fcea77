"""export of engine=mindspeed_rl: mcore back to Hugging Face by its converter, then checked like our own.

Its result lies in mg2hf/ below the original's directory; some guides say mg2hg/. It has file names of its
own and no tokenizer: what goes into the artifact has the fetched model's files, names and dtypes.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from stages.base.context import Context
from stages.base.errors import InputError
from stages.base.layout import LayoutConfig
from stages.base.reader import read
from stages.engines.mindspeed_rl.job import engine_of
from stages.engines.mindspeed_rl.stand_ins import link_mcore, name_dtype
from stages.engines.mindspeed_rl.start import to_huggingface
from stages.engines.mindspeed_rl.tokenize import encoder_of
from stages.engines.mindspeed_rl.watch import watch_tool
from stages.engines.model_directory import copy_model
from stages.engines.outside import Rendered, is_new, read_start, write_start
from stages.export.stage import make_usable
from stages.fetch.config import DatasetConfig
from stages.models.config import ModelConfig
from stages.weights.config import ExportConfig
from stages.weights.dtypes import FLOATS
from stages.weights.export import export
from stages.weights.names import name_map, renamed
from stages.weights.progress import to_context
from stages.weights.sources import Tensor, open_directory
from stages.weights.transfer import read_tensor

RESULTS = ("mg2hf", "mg2hg")
watch = watch_tool


def render(config: Mapping[str, Any], inputs: Mapping[str, Path], work: Path) -> Rendered:
    """Return how to start the converter, which reads none of our files."""
    model = read(ModelConfig, config["model"], "model")
    layout = read(LayoutConfig, config["layout"], "layout").train
    return Rendered(to_huggingface(engine_of(config), model, layout, work / "mcore", work / "hf"))


def prepare(context: Context) -> None:
    """Lay out the trained weights and a copy of the original, below which the result appears.

    No link to it: 05a90d7's converter changes the modes of all files there, through links, too
    (MindSpeed-LLM a2c0733b, tasks/checkpoint/saver.py:537, training/training.py:82).
    """
    copy_model(context.inputs["fetch"], context.work / "hf", linked=())
    name_dtype(context.work / "hf", context.section(ModelConfig, "model"))
    link_mcore(context.inputs["grpo"] / "mcore", context.work / "mcore")
    directory = context.work / "hf"
    write_start(context.work, render(context.config, context.inputs, context.work), directory)


def collect(context: Context) -> None:
    """Check the result and place it under the fetched model's names."""
    model, config = context.section(ModelConfig, "model"), context.section(ExportConfig, "export")
    result = result_of(context.work / "hf", read_start(context.work)["earlier"])
    tensors = renamed(open_directory(result), name_map(model), model, result)
    _require_finite(tensors, result)
    progress = to_context(context, "export")
    export(tensors, context.inputs["fetch"], context.output, model, config.dtype, progress=progress)
    encoder = encoder_of(context, context.section(DatasetConfig, "dataset"))
    engine = engine_of(context.config)
    rewards = {"functions": engine.verifier_function, "weights": engine.verifier_weight}
    make_usable({**context.config, "reward": rewards}, context.inputs, context.output, encoder)


def result_of(directory: Path, earlier: Mapping[str, list[int]]) -> Path:
    """Return the converter's result below the original's directory.

    Raises:
        InputError: there is none that is newer than the start.
    """
    for name in RESULTS:
        files = (directory / name).glob("*.safetensors")
        if any(is_new(file, earlier) for file in files):
            return directory / name
    rule = f"must hold {' or '.join(f'{name}/' for name in RESULTS)} with safetensors files"
    raise InputError(directory, None, rule, "read the converter's log")


def _require_finite(tensors: Mapping[str, Tensor], directory: Path) -> None:
    """One tensor in memory at a time."""
    for name, tensor in tensors.items():
        if tensor.dtype in FLOATS and not np.isfinite(read_tensor(tensor)).all():
            raise InputError(f"{directory}: {name}", None, "holds numbers that are not finite", "train anew")
