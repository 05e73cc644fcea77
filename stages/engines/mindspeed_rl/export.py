"""Stage export of engine=mindspeed_rl: mcore back to Hugging Face by its converter.

The result appears in mg2hf/ (in some guides mg2hg/) below the original model's directory, with file names of
its own and without a tokenizer. The artifact has the fetched model's files, names and dtypes.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stages.base.context import Context
from stages.base.errors import InputError
from stages.engines.mindspeed_rl import convert
from stages.engines.mindspeed_rl.job import engine_of
from stages.engines.mindspeed_rl.tokenize import encoder_of
from stages.engines.model_directory import copy_model, import_converted
from stages.engines.outside import Rendered, is_new, read_start, write_start
from stages.export.stage import make_usable
from stages.fetch.config import DatasetConfig
from stages.models.config import ModelConfig

RESULTS = ("mg2hf", "mg2hg")


def render(config: Mapping[str, Any], inputs: Mapping[str, Path], work: Path) -> Rendered:
    """Return how to start the converter, which reads no rendered file."""
    paths = {"load-dir": work / "mcore", "save-dir": work / "hf"}
    return Rendered(convert.converter(config, "hf", paths))


def prepare(context: Context) -> None:
    """Lay out the trained weights, and a copy of the original model, below which the result appears.

    It must not be a link: converters of MindSpeed-LLM change the modes of all files there, through links,
    too (a2c0733b, tasks/checkpoint/saver.py:537, training/training.py:82).
    """
    directory = context.work / "hf"
    copy_model(context.inputs["fetch"], directory, linked=())
    _set_torch_dtype(directory / "config.json", context.section(ModelConfig, "model"))
    copy_model(context.inputs["grpo"] / "mcore", context.work / "mcore")
    write_start(context.work, render(context.config, context.inputs, context.work), directory)


def _set_torch_dtype(file: Path, model: ModelConfig) -> None:
    """Add torch_dtype to config.json; transformers writes `dtype` instead from 4.56 on.

    The converter reads torch_dtype alone, and without it writes float32 (MindSpeed-LLM a2c0733b,
    tasks/checkpoint/models.py, get_modules_from_pretrained).
    """
    values = json.loads(file.read_text(encoding="utf-8"))
    if not values.get("torch_dtype"):
        values["torch_dtype"] = values.get("dtype") or model.torch_dtype
        file.write_text(json.dumps(values, indent=2) + "\n", encoding="utf-8")


def collect(context: Context) -> None:
    """Import the result with the fetched model's names; raises InputError if it is not new or damaged."""
    directory, earlier = context.work / "hf", read_start(context.work)["earlier"]
    files = [file for name in RESULTS for file in (directory / name).glob("*.safetensors")]
    results = [file.parent for file in files if is_new(file, earlier)]
    if not results:
        rule = f"must hold {' or '.join(f'{name}/' for name in RESULTS)} with new safetensors files"
        raise InputError(directory, None, rule, "read the converter's log")
    import_converted(context, results[0], default_dtype=None)
    encoder = encoder_of(context, context.section(DatasetConfig, "dataset"))
    engine = engine_of(context.config)
    rewards = {"functions": engine.verifier_function, "weights": engine.verifier_weight}
    make_usable({**context.config, "reward": rewards}, context.inputs, context.output, encoder)
