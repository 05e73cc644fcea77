"""Stage convert of engine=mindspeed_rl: Hugging Face to mcore by its converter, sharded as layout.train."""

import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from launch.nodes.start import Start
from stages.base.context import Context
from stages.base.layout import LayoutConfig
from stages.base.reader import read
from stages.engines.mindspeed_rl.contract import CONVERT, LLM_CONVERT
from stages.engines.mindspeed_rl.job import engine_of, home_of, layer_list
from stages.engines.mindspeed_rl.results import converted, import_weights
from stages.engines.model_directory import copy_model
from stages.engines.outside import Rendered, make_start, options, write_start
from stages.models.config import Dtype, ModelConfig
from stages.models.families import family_of

_DTYPES: dict[Dtype, str] = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32"}


def render(config: Mapping[str, Any], inputs: Mapping[str, Path], work: Path) -> Rendered:
    """Return how to start the converter, which reads no rendered file."""
    source = work / "hf"
    paths = {"load-dir": source, "save-dir": work / "mcore", "tokenizer-model": source / "tokenizer.json"}
    return Rendered(converter(config, "mg", paths))


def converter(config: Mapping[str, Any], target: Literal["mg", "hf"], paths: Mapping[str, Path]) -> Start:
    """Return how to start the converter in its checkout, where it reads configs/checkpoint/model_cfg.json.

    On the way back to Hugging Face's format, 05a90d7's converter ends with unexpected keys if uneven pipeline
    stages are not given, and 667a547's raises ValueError if they are.
    """
    engine, model = engine_of(config), read(ModelConfig, config["model"], "model")
    layout = read(LayoutConfig, config["layout"], "layout").train
    family, older, back = family_of(model).converter, engine.contract == "667a547", target == "hf"
    assert family is not None  # stages.models.families.family_problems
    model_type = {
        "model-type": "GPT",
        "model-type-hf": family.model_type,
        "load-model-type": "mg" if back else "hf",
        "save-model-type": target,
        "target-tensor-parallel-size": 1 if back else layout.model_parallel,
        "target-pipeline-parallel-size": 1 if back else layout.pipeline_stage,
    }
    more: dict[str, object] = {**paths, "params-dtype": _DTYPES[model.torch_dtype]}
    layers = layer_list(model, layout)
    if layers and not (back and older):
        more["num-layer-list"] = layers
    arguments = ("--use-mcore-models", *options(model_type), *family.options, *options(more))
    home = home_of(engine) if older else engine.mindspeed_llm_home or "/path/to/MindSpeed-LLM"
    environment = {**engine.env, "CUDA_DEVICE_MAX_CONNECTIONS": "1", **engine.convert_env}
    settings = replace(engine, python=engine.convert_python or engine.python, env=environment)
    program = Path(home) / (CONVERT if older else LLM_CONVERT)
    return replace(
        make_start(settings, (program, *arguments), Path(home), {}, [home], workers=0), directory=home
    )


def prepare(context: Context) -> None:
    """Lay out what the converter reads."""
    copy_model(context.inputs["fetch"], context.work / "hf")
    shutil.rmtree(context.work / "mcore", ignore_errors=True)
    write_start(context.work, render(context.config, context.inputs, context.work))


def collect(context: Context) -> None:
    """Check the result and import it."""
    layout = context.section(LayoutConfig, "layout").train
    weights = converted(context.work / "mcore", layout)
    import_weights(weights, context.output / "mcore", layout)
    result = {
        "tensor_model_parallel_size": layout.model_parallel,
        "pipeline_model_parallel_size": layout.pipeline_stage,
        "checkpoint": weights.name,
    }
    context.write_result(result)
