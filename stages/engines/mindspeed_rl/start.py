"""How MindSpeed-RL's programs are started: arguments, environment, interpreter. Pure."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from launch.nodes.start import Ray, Start
from stages.base.layout import RoleLayout
from stages.engines.mindspeed_rl.config import MindspeedRlEngine
from stages.engines.mindspeed_rl.contract import CONVERT, LLM_CONVERT, PREPROCESS, TRAIN
from stages.engines.mindspeed_rl.job import HOME_UNKNOWN, LLM_HOME_UNKNOWN, Job, Paths, layers_of, version_of
from stages.models.config import Dtype, ModelConfig
from stages.models.families import family_of

TRAIN_NAME = "train"
DATASET_NAME = "train"
"""Names of the rendered YAML files, as Hydra is told them."""
VARIABLES = {
    "RAY_DEDUP_LOGS": "0",
    "HYDRA_FULL_ERROR": "1",
    "TASK_QUEUE_ENABLE": "2",
    "HCCL_IF_BASE_PORT": "24703",
    "MALLOC_MMAP_THRESHOLD_": "512768",
    "LCAL_COMM_ID": "127.0.0.1:27001",
}
"""Environment variables of the shipped grpo_trainer_*.sh, for head and workers alike."""
_DTYPES: dict[Dtype, str] = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32"}


def home_of(engine: MindspeedRlEngine) -> str:
    """Return the checkout, or a placeholder in the files of --dry-run."""
    return engine.mindspeed_rl_home or HOME_UNKNOWN


def train(job: Job, paths: Paths) -> Start:
    """Return how to start training."""
    engine, home = job.engine, home_of(job.engine)
    program = (
        str(Path(home) / TRAIN),
        f"--config-path={paths.configs}",
        f"--config-name={TRAIN_NAME}",
        f"hydra.run.dir={paths.root / 'hydra'}",
    )
    start = _start(engine, program, str(paths.root / "run"), engine.python, VARIABLES)
    ray = Ray(engine.ray_address, engine.ray_dashboard_port, engine.ray_options, engine.ray_wait_timeout_s)
    return replace(start, workers=job.npus, ray=ray)


def preprocess(engine: MindspeedRlEngine, work: Path) -> Start:
    """Return how to preprocess the training data described by work/configs/train.yaml."""
    program = (
        str(Path(home_of(engine)) / PREPROCESS),
        DATASET_NAME,
        f"--config-path={work / 'configs'}",
        f"hydra.run.dir={work / 'hydra'}",
    )
    return _start(engine, program, str(work / "run"), engine.python, {})


def to_mcore(
    engine: MindspeedRlEngine, model: ModelConfig, layout: RoleLayout, source: Path, target: Path
) -> Start:
    """Return how to convert a Hugging Face directory to Megatron's format, sharded for training."""
    arguments = [
        *_conversion(model, "hf", "mg", layout.model_parallel, layout.pipeline_stage),
        *_option("load-dir", source),
        *_option("save-dir", target),
        *_option("tokenizer-model", source / "tokenizer.json"),
        *_option("params-dtype", _DTYPES[model.torch_dtype]),
        *_layer_list(model, layout),
    ]
    return _converter(engine, arguments)


def to_huggingface(
    engine: MindspeedRlEngine, model: ModelConfig, layout: RoleLayout, source: Path, target: Path
) -> Start:
    """Return how to convert a Megatron directory back to Hugging Face's format.

    How many layers each pipeline stage has, 05a90d7's converter must be told: without the list it ends with
    unexpected keys. The earlier one reads it from the checkpoint, and with the list ends in ValueError.
    """
    arguments = [
        *_conversion(model, "mg", "hf", 1, 1),
        *_option("load-dir", source),
        *_option("save-dir", target),
        *_option("params-dtype", _DTYPES[model.torch_dtype]),
    ]
    if version_of(engine) != "667a547":
        arguments += _layer_list(model, layout)
    return _converter(engine, arguments)


def _layer_list(model: ModelConfig, layout: RoleLayout) -> list[str]:
    layers = layers_of(model, layout)
    return _option("num-layer-list", ",".join(map(str, layers))) if layers else []


def _conversion(model: ModelConfig, source: str, target: str, tensor: int, pipeline: int) -> list[str]:
    converter = family_of(model).converter
    assert converter is not None  # stages.models.families.RULES
    return [
        "--use-mcore-models",
        *_option("model-type", "GPT"),
        *_option("model-type-hf", converter.model_type),
        *_option("load-model-type", source),
        *_option("save-model-type", target),
        *_option("target-tensor-parallel-size", tensor),
        *_option("target-pipeline-parallel-size", pipeline),
        *converter.options,
    ]


def _converter(engine: MindspeedRlEngine, arguments: Sequence[str]) -> Start:
    """Return how to start the converter in its checkout, where it reads configs/checkpoint/model_cfg.json."""
    if version_of(engine) == "667a547":
        home, program = home_of(engine), CONVERT
    else:
        home, program = engine.mindspeed_llm_home or LLM_HOME_UNKNOWN, LLM_CONVERT
    variables = {"CUDA_DEVICE_MAX_CONNECTIONS": "1", **engine.convert_env}
    line = (str(Path(home) / program), *arguments)
    return _start(engine, line, home, engine.convert_python or engine.python, variables, home=home)


def _start(
    engine: MindspeedRlEngine,
    program: tuple[str, ...],
    directory: str,
    python: str | None,
    variables: dict[str, str],
    home: str | None = None,
) -> Start:
    return Start(
        program=program,
        workers=0,
        python=python,
        env={**variables, **engine.env} if home is None else {**engine.env, **variables},
        python_path=(home or home_of(engine),),
        env_scripts=engine.env_scripts,
        container=engine.container,
        directory=directory,
    )


def _option(name: str, value: object) -> list[str]:
    return [f"--{name}", str(value)]
