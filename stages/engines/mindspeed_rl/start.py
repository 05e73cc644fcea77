"""How MindSpeed-RL's programs are started: arguments, environment, interpreter."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from launch.nodes.start import Ray, Start
from stages.base.layout import RoleLayout
from stages.engines.mindspeed_rl.config import MindspeedRlEngine
from stages.engines.mindspeed_rl.contract import CONVERT, LLM_CONVERT, PREPROCESS, TRAIN
from stages.engines.mindspeed_rl.job import Job, Paths, layer_list, version_of
from stages.engines.outside import make_start
from stages.models.config import Dtype, ModelConfig
from stages.models.families import family_of

CONFIG_NAME = "train"
"""Name of the rendered YAML file, of the dataset and of the run, as it is passed to Hydra."""
VARIABLES = {
    "RAY_DEDUP_LOGS": "0",
    "HYDRA_FULL_ERROR": "1",
    "TASK_QUEUE_ENABLE": "2",
    "HCCL_IF_BASE_PORT": "24703",
    "MALLOC_MMAP_THRESHOLD_": "512768",
    "LCAL_COMM_ID": "127.0.0.1:27001",
}
"""Environment variables of the shipped grpo_trainer_*.sh, for head and workers alike."""
_HOME_UNKNOWN, _LLM_HOME_UNKNOWN = "/path/to/MindSpeed-RL", "/path/to/MindSpeed-LLM"
"""Checkouts in the files of run --render if the configuration has none."""
_DTYPES: dict[Dtype, str] = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32"}


def train(job: Job, paths: Paths) -> Start:
    """Return how to start training."""
    engine, home = job.engine, job.engine.mindspeed_rl_home or _HOME_UNKNOWN
    command = (
        Path(home) / TRAIN,
        f"--config-path={paths.configs}",
        f"--config-name={CONFIG_NAME}",
        f"hydra.run.dir={paths.root / 'hydra'}",
    )
    ray = Ray(engine.ray_address, engine.ray_dashboard_port, engine.ray_options, engine.ray_wait_timeout_s)
    return make_start(engine, command, paths.root, VARIABLES, [home], workers=job.npus, ray=ray)


def preprocess(engine: MindspeedRlEngine, work: Path) -> Start:
    """Return how to preprocess the training data described by work/configs/train.yaml."""
    home = engine.mindspeed_rl_home or _HOME_UNKNOWN
    arguments = (CONFIG_NAME, f"--config-path={work / 'configs'}", f"hydra.run.dir={work / 'hydra'}")
    return make_start(engine, (Path(home) / PREPROCESS, *arguments), work, {}, [home], workers=0)


def to_mcore(
    engine: MindspeedRlEngine, model: ModelConfig, layout: RoleLayout, source: Path, target: Path
) -> Start:
    """Return how to convert a Hugging Face directory to Megatron's format, sharded for training."""
    paths = {"load-dir": source, "save-dir": target, "tokenizer-model": source / "tokenizer.json"}
    degrees = layout.model_parallel, layout.pipeline_stage
    return _convert(engine, model, ("hf", "mg"), degrees, paths, layer_list(model, layout))


def to_huggingface(
    engine: MindspeedRlEngine, model: ModelConfig, layout: RoleLayout, source: Path, target: Path
) -> Start:
    """Return how to convert a Megatron directory back to Hugging Face's format.

    05a90d7's converter needs the number of layers of each pipeline stage: without it, it ends with unexpected
    keys. The earlier one reads it from the checkpoint and raises ValueError if it is given.
    """
    layers = "" if version_of(engine) == "667a547" else layer_list(model, layout)
    return _convert(engine, model, ("mg", "hf"), (1, 1), {"load-dir": source, "save-dir": target}, layers)


def _convert(
    engine: MindspeedRlEngine,
    model: ModelConfig,
    formats: tuple[str, str],
    degrees: tuple[int, int],
    paths: Mapping[str, Path],
    layers: str,
) -> Start:
    """Return how to start the converter in its checkout, where it reads configs/checkpoint/model_cfg.json."""
    converter = family_of(model).converter
    assert converter is not None  # stages.models.families.RULES
    fixed = {
        "model-type": "GPT",
        "model-type-hf": converter.model_type,
        "load-model-type": formats[0],
        "save-model-type": formats[1],
        "target-tensor-parallel-size": degrees[0],
        "target-pipeline-parallel-size": degrees[1],
    }
    remaining = {**paths, "params-dtype": _DTYPES[model.torch_dtype]}
    if layers:
        remaining["num-layer-list"] = layers
    arguments = ("--use-mcore-models", *_options(fixed), *converter.options, *_options(remaining))
    if version_of(engine) == "667a547":
        home, program = engine.mindspeed_rl_home or _HOME_UNKNOWN, CONVERT
    else:
        home, program = engine.mindspeed_llm_home or _LLM_HOME_UNKNOWN, LLM_CONVERT
    start = make_start(engine, (Path(home) / program, *arguments), Path(home), {}, [home], workers=0)
    return replace(
        start,
        python=engine.convert_python or engine.python,
        env={**engine.env, "CUDA_DEVICE_MAX_CONNECTIONS": "1", **engine.convert_env},
        directory=home,
    )


def _options(values: Mapping[str, object]) -> list[str]:
    return [text for name, value in values.items() for text in (f"--{name}", str(value))]
