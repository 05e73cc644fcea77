"""Content of the files that mindrlhf reads: grpo_config.yaml, and a model file for mindformers per role.

fields/grpo_config.yaml is the template of the first; values that it calls derived are computed here.
Source of the model files: mindformers 051d65f; mindrlhf e8a8fc1, model_configs. Tutorials for experts have a
form of their own.
"""

from pathlib import Path
from typing import Any

from stages.base.layout import RoleLayout
from stages.engines.mindformers.checkpoints import checkpoints_to_keep
from stages.engines.mindformers.model_sections import (
    parallel_config,
    predicting,
    recompute_config,
    sampling,
    training,
)
from stages.engines.mindrlhf import upstream
from stages.engines.mindrlhf.job import Job, Paths
from stages.engines.mindrlhf.vocabulary import ENDOFTEXT_TEXT
from stages.engines.template import fill
from stages.models.families import network_of

Values = dict[str, Any]
PROCESSORS = upstream.FIELDS / "processors.yaml"
CONFIG, RESUME_CONFIG = "grpo_config.yaml", "grpo_config_resume.yaml"


def grpo_config(job: Job, paths: Paths, resume: bool) -> Values:
    """Return all sections of grpo_config.yaml, with the keys that the version of mindrlhf knows."""
    fields = upstream.fields(job)
    derived = _derived(job, paths, resume)
    return fill(upstream.TEMPLATE, job, paths, derived, lambda path: fields.knows(f"grpo_config.{path}"))


def _derived(job: Job, paths: Paths, resume: bool) -> Values:
    engine, train = job.engine, job.train
    # With ckpt, train_worker.py's reload_ckpt would look for .ckpt files; what it saved is safetensors.
    reloads = resume and engine.load_ckpt_format == "ckpt"
    return {
        "tokenizer": tokenizer_path(job, paths),
        "tokenizer_type": tokenizer_type(job),
        "load_ckpt_format": "ms_safetensors" if reloads else engine.load_ckpt_format,
        "kept_checkpoints": checkpoints_to_keep(train.keep_checkpoints),
        "saves_completions": train.logged_completions > 0,
        **{f"{role}_offset": list(job.layout.role(role).offset) or 0 for role in job.roles},
        "min_lr": train.learning_rate * (1.0 if train.schedule == "constant" else train.final_share),
        "lr_decay_style": "cosine" if train.schedule == "cosine" else "linear",
        "sync_ref_model": train.ref_model_sync_steps > 0,
        "ref_model_sync_steps": train.ref_model_sync_steps or 50,
        "verifiers": [job.verifiers[name] for name in job.reward.functions],
    }


def tokenizer_type(job: Job) -> str:
    """Return the tokenizer class of e8a8fc1 (models/model_utils.py, TokenizerFactory)."""
    return "deepseek" if job.reads_tokenizer_json else job.tutorial.name


def tokenizer_path(job: Job, paths: Paths) -> Path:
    """Return the tokenizer's directory; for 0cd087455 its tokenizer.json (grpo_trainer.py:238)."""
    is_file = job.reads_tokenizer_json and job.version == "0cd087455"
    return paths.tokenizer / "tokenizer.json" if is_file else paths.tokenizer


def all_configs(job: Job, paths: Paths, resume: bool) -> dict[str, Values]:
    """Return the content of every YAML file by name."""
    return {
        CONFIG: grpo_config(job, paths, resume),
        "finetune.yaml": _training_role(job, job.layout.train, paths),
        "reference.yaml": _training_role(job, job.layout.reference, paths),
        "predict.yaml": _predict(job, paths),
    }


def _training_role(job: Job, layout: RoleLayout, paths: Paths) -> Values:
    config, experts = training(job.model, layout, job.seq_length), job.tutorial.experts
    if experts is not None:
        return {"run_mode": "train", **_model(job, config), "moe_config": experts(job.model, True)}
    config |= {"do_sample": False, "compute_in_2d": True}
    return {"run_mode": "finetune", **_model(job, config), **_run(job, layout, paths)}


def _predict(job: Job, paths: Paths) -> Values:
    layout, experts, blocks = job.layout.generate, job.tutorial.experts, network_of(job.model).num_blocks
    sampled = sampling(job.rollout, job.engine.block_size, blocks)
    model = _model(job, predicting(job.model, layout, job.seq_length, sampled))
    if experts is None:
        return {"run_mode": "predict", **model, **_run(job, layout, paths)}
    return {
        "run_mode": "predict",
        "load_ckpt_format": "safetensors",
        **model,
        "moe_config": experts(job.model, False),
        "processor": _processor(job, paths),
    }


def _model(job: Job, config: Values) -> Values:
    return {"model": {"model_config": config, "arch": dict(network_of(job.model).arch)}}


def _run(job: Job, layout: RoleLayout, paths: Paths) -> Values:
    return {
        "parallel_config": parallel_config(layout),
        "recompute_config": recompute_config(job.model, layout),
        "processor": _processor(job, paths),
    }


def _processor(job: Job, paths: Paths) -> Values:
    """Return the processor; mindrlhf pads packed samples with its end token (pack_grouped_data)."""
    tokens = dict(job.tutorial.special_tokens)
    kind = "fast" if tokens or job.reads_tokenizer_json else "qwen"
    tokens = tokens or dict.fromkeys(("unk", "bos", "eos", "pad"), ENDOFTEXT_TEXT)
    if kind == "qwen" and job.model.variant == "instruct":
        tokens["eos"] = "<|im_end|>"
    processor: Values = fill(PROCESSORS, job, paths, tokens)[kind]
    return processor
