"""Content of grpo_config.yaml: fields/grpo_config.yaml and the values that are computed for it."""

from pathlib import Path
from typing import Any

from stages.engines.mindrlhf import upstream
from stages.engines.mindrlhf.job import Job, Paths
from stages.engines.template import fill

Values = dict[str, Any]


def grpo_config(job: Job, paths: Paths, resume: bool) -> Values:
    """Return all sections of grpo_config.yaml, with the keys that the version of mindrlhf knows."""
    fields = upstream.fields(job)
    derived = _derived(job, paths, resume)
    return fill(upstream.TEMPLATE, job, paths, derived, lambda path: fields.knows(f"grpo_config.{path}"))


def _derived(job: Job, paths: Paths, resume: bool) -> Values:
    engine, train, rollout = job.engine, job.train, job.rollout
    # With ckpt, train_worker.py's reload_ckpt would look for .ckpt files; what it saved is safetensors.
    reloads = resume and engine.load_ckpt_format == "ckpt"
    return {
        "tokenizer": tokenizer_path(job, paths),
        "tokenizer_type": tokenizer_type(job),
        "hf_config": paths.tokenizer / "config.json",
        "load_ckpt_format": "ms_safetensors" if reloads else engine.load_ckpt_format,
        "finetune": paths.configs / "finetune.yaml",
        "reference": paths.configs / "reference.yaml",
        "predict": paths.configs / "predict.yaml",
        "tensorboard": paths.root / "tensorboard",
        "profile": paths.root / "profile",
        "graph": paths.root / "graph",
        "saves_completions": train.logged_completions > 0,
        **{f"{role}_offset": list(job.layout.role(role).offset) or 0 for role in job.roles},
        "min_lr": train.learning_rate * (1.0 if train.schedule == "constant" else train.final_share),
        "lr_decay_style": "cosine" if train.schedule == "cosine" else "linear",
        "sync_ref_model": train.ref_model_sync_steps > 0,
        "ref_model_sync_steps": train.ref_model_sync_steps or 50,
        "verifiers": [job.verifiers[name] for name in job.reward.functions],
        "top_p": 1.0 if rollout.top_p is None else rollout.top_p,
        "top_k": job.model.vocab_size if rollout.top_k is None else rollout.top_k,
        "min_p": 0.0 if rollout.min_p is None else rollout.min_p,
        "device_memory": f"{engine.device_memory_gib}GB",
    }


def tokenizer_type(job: Job) -> str:
    """Return the tokenizer class of e8a8fc1 (models/model_utils.py, TokenizerFactory)."""
    return "deepseek" if job.reads_tokenizer_json else job.tutorial.name


def tokenizer_path(job: Job, paths: Paths) -> Path:
    """Return the tokenizer's directory; for 0cd087455 its tokenizer.json (grpo_trainer.py:238)."""
    is_file = job.reads_tokenizer_json and job.version == "0cd087455"
    return paths.tokenizer / "tokenizer.json" if is_file else paths.tokenizer
