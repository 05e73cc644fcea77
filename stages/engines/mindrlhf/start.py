"""Start of mindrlhf: rendered files, arguments and environment of a run that begins or resumes."""

import dataclasses
from pathlib import Path
from typing import Any

from stages.engines.mindformers import checkpoints
from stages.engines.mindrlhf.files import grpo_config, model_configs, tokenizer_path, tokenizer_type
from stages.engines.mindrlhf.job import Job, Paths
from stages.engines.mindrlhf.upstream import added
from stages.engines.outside import Rendered, dump, make_start

CONFIG, RESUME_CONFIG = "grpo_config.yaml", "grpo_config_resume.yaml"
HOME_UNKNOWN = "/path/to/mindrlhf"
"""Placeholder in the files of run --render if engine.mindrlhf_home is not set."""


def all_configs(job: Job, paths: Paths, resume: bool) -> dict[str, dict[str, Any]]:
    """Return the content of every YAML file by name."""
    return {CONFIG: grpo_config(job, paths, resume), **model_configs(job, paths)}


def resumed(paths: Paths) -> Paths:
    """Return the paths of the same run, resumed from its own checkpoints; the optimizer is next to train/."""
    root = paths.checkpoints
    return dataclasses.replace(paths, actor=root / "train", reference=root / "ref")


def render(job: Job, paths: Paths) -> Rendered:
    """Return the files of a run and how to start it, for the first time or after any end."""
    home = job.engine.mindrlhf_home or HOME_UNKNOWN
    main, workers = Path(home) / job.tutorial.main, job.layout.train.cards
    start = make_start(
        job.engine,
        (main, *arguments(job, paths, resume=False)),
        paths.root,
        env=environment(job, paths),
        checkouts=(home, job.engine.mindformers_home, job.engine.msadapter_home),
        workers=workers,
        resumable=(str(paths.configs / "checkpoints.py"), str(paths.checkpoints), str(workers)),
        again=(str(main), *arguments(job, resumed(paths), resume=True)),
    )
    configs = all_configs(job, paths, resume=False)
    configs[RESUME_CONFIG] = grpo_config(job, resumed(paths), resume=True)  # all else is the same
    files = {f"configs/{name}": dump(values, added(job, name)) for name, values in configs.items()}
    files["configs/checkpoints.py"] = Path(checkpoints.__file__).read_text(encoding="utf-8")
    return Rendered(start, files)


def arguments(job: Job, paths: Paths, resume: bool) -> list[str]:
    """Return the arguments of main.py, which repeat what the YAML says."""
    if job.version == "e8a8fc1":
        names = {"model_name": job.tutorial.name, "tokenizer_type": tokenizer_type(job)}
    else:
        names = {"custom_model_name": "llama" if job.reads_tokenizer_json else job.tutorial.name}
    named = {
        "config": paths.configs / (RESUME_CONFIG if resume else CONFIG),
        **names,
        "dataset_file": paths.dataset,
        "tokenizer_dir": tokenizer_path(job, paths),
        "actor_checkpoint_path": paths.actor,
        "ref_checkpoint_path": paths.reference,
        "generate_checkpoint_path": paths.generate,
        "save_checkpoint_dir": paths.checkpoints,
    }
    return [f"--{name}={value}" for name, value in named.items()] + (["--resume_training"] if resume else [])


def environment(job: Job, paths: Paths) -> dict[str, str]:
    """Return the variables of run_grpo.sh and run_grpo_vllm.sh, and those of the model's tutorial."""
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
    if job.tutorial.experts is not None and engine.use_vllm:  # vllm-mindspore reads the experts' shape there
        variables["MINDFORMERS_MODEL_CONFIG"] = str(paths.configs / "predict.yaml")
    return variables
