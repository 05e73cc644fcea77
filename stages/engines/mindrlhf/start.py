"""How mindrlhf is started: arguments, environment, and the files that launch needs. Pure but for writing."""

import dataclasses
import shutil
from pathlib import Path
from typing import Any

from launch.nodes.start import Start
from stages.engines.mindformers import checkpoints
from stages.engines.mindrlhf.grpo_yaml import grpo_config, tokenizer_place, tokenizer_type
from stages.engines.mindrlhf.job import Job, Places
from stages.engines.mindrlhf.model_yaml import model_configs
from stages.engines.outside import dump

RESUME_CONFIG = "grpo_config_resume.yaml"
HOME_UNKNOWN = "/path/to/mindrlhf"
"""Stands in --dry-run's files where engine.mindrlhf_home is not set."""


def write_configs(job: Job, places: Places) -> None:
    """grpo_config.yaml of a run that begins and of one that goes on, the model files, and what decides."""
    places.configs.mkdir(parents=True, exist_ok=True)
    files = {**all_configs(job, places, resume=False), RESUME_CONFIG: resume_config(job, places)}
    for name, values in files.items():
        (places.configs / name).write_text(dump(values), encoding="utf-8")
    shutil.copyfile(checkpoints.__file__, places.configs / "checkpoints.py")


def resume_config(job: Job, places: Places) -> dict[str, Any]:
    """grpo_config.yaml of a run that goes on; the model files are the same."""
    return grpo_config(job, resumed(places), resume=True)


def resumed(places: Places) -> Places:
    """Return the paths of the same run, resumed from its own checkpoints; the optimizer is next to train/."""
    root = places.checkpoints
    return dataclasses.replace(places, actor=root / "train", reference=root / "ref")


def all_configs(job: Job, places: Places, resume: bool) -> dict[str, dict[str, Any]]:
    """File name -> content of every YAML file."""
    return {"grpo_config.yaml": grpo_config(job, places, resume), **model_configs(job, places)}


def start(job: Job, places: Places) -> Start:
    """Return how to start the run whose files are in `places`, for the first time or after any end."""
    engine = job.engine
    home = engine.mindrlhf_home or HOME_UNKNOWN
    paths = [home, engine.mindformers_home, engine.msadapter_home]
    main = str(Path(home) / job.tutorial.main)
    decides, workers = places.configs / "checkpoints.py", job.layout.train.cards
    return Start(
        program=(main, *arguments(job, places, resume=False)),
        resumable=(str(decides), str(places.checkpoints), str(workers)),
        again=(main, *arguments(job, resumed(places), resume=True)),
        workers=workers,
        python=engine.python,
        env={**environment(job, places), **engine.env},
        python_path=tuple(path for path in paths if path),
        env_scripts=engine.env_scripts,
        container=engine.container,
        directory=str(places.root / "run"),
    )


def arguments(job: Job, places: Places, resume: bool) -> list[str]:
    """main.py's arguments; they override the YAML, which says the same."""
    named = {
        "config": places.configs / (RESUME_CONFIG if resume else "grpo_config.yaml"),
        **(
            {"model_name": job.tutorial.name, "tokenizer_type": tokenizer_type(job)}
            if job.version == "e8a8fc1"
            else {"custom_model_name": "llama" if job.hands_tokenizer_over else job.tutorial.name}
        ),
        "dataset_file": places.dataset,
        "tokenizer_dir": tokenizer_place(job, places),
        "actor_checkpoint_path": places.actor,
        "ref_checkpoint_path": places.reference,
        "generate_checkpoint_path": places.generate,
        "save_checkpoint_dir": places.checkpoints,
    }
    return [f"--{name}={value}" for name, value in named.items()] + (["--resume_training"] if resume else [])


def environment(job: Job, places: Places) -> dict[str, str]:
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
        variables["MINDFORMERS_MODEL_CONFIG"] = str(places.configs / "predict.yaml")
    return variables
