"""How mindrlhf is started: arguments, environment, and the files that launch needs. Pure but for writing."""

import dataclasses
import shutil
from pathlib import Path
from typing import Any

from launch.nodes.start import Start
from stages.engines.mindformers import checkpoints
from stages.engines.mindrlhf.grpo_yaml import grpo_config, tokenizer_path, tokenizer_type
from stages.engines.mindrlhf.job import Job, Paths
from stages.engines.mindrlhf.model_yaml import model_configs
from stages.engines.outside import dump

RESUME_CONFIG = "grpo_config_resume.yaml"
HOME_UNKNOWN = "/path/to/mindrlhf"
"""Stands in --dry-run's files where engine.mindrlhf_home is not set."""


def write_configs(job: Job, paths: Paths) -> None:
    """grpo_config.yaml of a run that begins and of one that goes on, the model files, and what decides."""
    paths.configs.mkdir(parents=True, exist_ok=True)
    files = {**all_configs(job, paths, resume=False), RESUME_CONFIG: resume_config(job, paths)}
    for name, values in files.items():
        (paths.configs / name).write_text(dump(values), encoding="utf-8")
    shutil.copyfile(checkpoints.__file__, paths.configs / "checkpoints.py")


def resume_config(job: Job, paths: Paths) -> dict[str, Any]:
    """grpo_config.yaml of a run that goes on; the model files are the same."""
    return grpo_config(job, resumed(paths), resume=True)


def resumed(paths: Paths) -> Paths:
    """Return the paths of the same run, resumed from its own checkpoints; the optimizer is next to train/."""
    root = paths.checkpoints
    return dataclasses.replace(paths, actor=root / "train", reference=root / "ref")


def all_configs(job: Job, paths: Paths, resume: bool) -> dict[str, dict[str, Any]]:
    """File name -> content of every YAML file."""
    return {"grpo_config.yaml": grpo_config(job, paths, resume), **model_configs(job, paths)}


def start(job: Job, paths: Paths) -> Start:
    """Return how to start the run whose files are in `paths`, for the first time or after any end."""
    engine = job.engine
    home = engine.mindrlhf_home or HOME_UNKNOWN
    checkouts = [home, engine.mindformers_home, engine.msadapter_home]
    main = str(Path(home) / job.tutorial.main)
    decides, workers = paths.configs / "checkpoints.py", job.layout.train.cards
    return Start(
        program=(main, *arguments(job, paths, resume=False)),
        resumable=(str(decides), str(paths.checkpoints), str(workers)),
        again=(main, *arguments(job, resumed(paths), resume=True)),
        workers=workers,
        python=engine.python,
        env={**environment(job, paths), **engine.env},
        python_path=tuple(checkout for checkout in checkouts if checkout),
        env_scripts=engine.env_scripts,
        container=engine.container,
        directory=str(paths.root / "run"),
    )


def arguments(job: Job, paths: Paths, resume: bool) -> list[str]:
    """main.py's arguments; they override the YAML, which says the same."""
    named = {
        "config": paths.configs / (RESUME_CONFIG if resume else "grpo_config.yaml"),
        **(
            {"model_name": job.tutorial.name, "tokenizer_type": tokenizer_type(job)}
            if job.version == "e8a8fc1"
            else {"custom_model_name": "llama" if job.hands_tokenizer_over else job.tutorial.name}
        ),
        "dataset_file": paths.dataset,
        "tokenizer_dir": tokenizer_path(job, paths),
        "actor_checkpoint_path": paths.actor,
        "ref_checkpoint_path": paths.reference,
        "generate_checkpoint_path": paths.generate,
        "save_checkpoint_dir": paths.checkpoints,
    }
    return [f"--{name}={value}" for name, value in named.items()] + (["--resume_training"] if resume else [])


def environment(job: Job, paths: Paths) -> dict[str, str]:
    """Variables of run_grpo.sh and run_grpo_vllm.sh, for each architecture its own."""
    engine = job.engine
    variables = {
        "GLOG_v": "2",
        "HCCL_EXEC_TIMEOUT": "7200",
        "MS_ENABLE_LCCL": "off",
        "MS_ALLOC_CONF": "memory_tracker:False,enable_vmm:True",
    }
    if engine.mindformers_home is not None:
        variables["MINDFORMERS_PATH"] = engine.mindformers_home
    if engine.msadapter_home is not None:
        variables["MSADAPTER_PATH"] = engine.msadapter_home
    if engine.use_vllm:
        variables |= {"vLLM_MODEL_BACKEND": "MindFormers", "MS_JIT_MODULES": "vllm_mindspore,research"}
    variables |= job.tutorial.environment
    if (
        job.tutorial.experts is not None and engine.use_vllm
    ):  # vllm-mindspore reads the experts' shape from it
        variables["MINDFORMERS_MODEL_CONFIG"] = str(paths.configs / "predict.yaml")
    return variables
