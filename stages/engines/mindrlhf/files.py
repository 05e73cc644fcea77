"""Content of the files that mindrlhf reads: grpo_config.yaml, and a model file for mindformers per role.

fields/grpo_config.yaml is the template of the first; values that it calls derived are computed here.
Source of the model files: mindformers 051d65f; mindrlhf e8a8fc1, model_configs. Tutorials for experts have a
form of their own. `engine.upstream` adds keys: grpo_config.SECTION.KEY and model.ROLE.KEY.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stages.base.layout import Role
from stages.engines.mindformers.checkpoints import checkpoints_to_keep
from stages.engines.mindformers.files import (
    network_inputs,
    parallel_config,
    predicting,
    recompute_config,
    sampling,
    training,
)
from stages.engines.mindrlhf.job import Job, Paths
from stages.engines.mindrlhf.vocabulary import ENDOFTEXT_TEXT
from stages.engines.template import fill
from stages.engines.upstream import Upstream, load
from stages.models.families import family_of, network_of

Values = dict[str, Any]
FIELDS = Path(__file__).with_name("fields")
MINDFORMERS_FIELDS = FIELDS.parents[1] / "mindformers" / "fields"
TEMPLATE = FIELDS / "grpo_config.yaml"
CONFIG, RESUME_CONFIG = "grpo_config.yaml", "grpo_config_resume.yaml"
FILES: dict[Role, str] = {
    "train": "finetune.yaml",
    "reference": "reference.yaml",
    "generate": "predict.yaml",
}
"""Role -> its model file."""
CLASSES = {"LlamaForCausalLM": "LlamaConfig", "DeepseekV3ForCausalLM": "DeepseekV3Config"}
"""Network -> class of its model_config."""


def fields(job: Job) -> Upstream:
    """Return the fields of the files of a run."""
    cls = CLASSES[network_of(job.model).arch["type"]]
    models = [(f"model.{role}.model.model_config", MINDFORMERS_FIELDS / f"{cls}.yaml", "") for role in FILES]
    if family_of(job.model).experts is not None:
        models += [(f"model.{role}", MINDFORMERS_FIELDS / "template.yaml", "moe_config") for role in FILES]
    config = ("grpo_config", FIELDS / f"{job.version}.yaml", "")
    return load(FIELDS / "keys.yaml", config, *models, templates=(("grpo_config", TEMPLATE),))


def added(job: Job) -> dict[str, Mapping[str, Any]]:
    """Return the added keys of each rendered file."""
    groups = job.engine.upstream
    models = {file: groups.get("model", {}).get(role, {}) for role, file in FILES.items()}
    return {**models, **dict.fromkeys((CONFIG, RESUME_CONFIG), groups.get("grpo_config", {}))}


def all_configs(job: Job, paths: Paths, resume: bool) -> dict[str, Values]:
    """Return the content of every YAML file by name."""
    models = {file: _model_file(job, role, paths) for role, file in FILES.items()}
    return {CONFIG: grpo_config(job, paths, resume), **models}


def grpo_config(job: Job, paths: Paths, resume: bool) -> Values:
    """Return all sections of grpo_config.yaml, with the keys that the version of mindrlhf knows."""
    known = fields(job)
    derived = _derived(job, paths, resume)
    return fill(TEMPLATE, job, paths, derived, lambda path: known.knows(f"grpo_config.{path}"))


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


def _model_file(job: Job, role: Role, paths: Paths) -> Values:
    """Return mindformers' configuration of one role."""
    layout, network = job.layout.role(role), network_of(job.model)
    generates = role == "generate"
    if generates:
        sampled = sampling(job.rollout, job.engine.block_size, network.num_blocks)
        config = predicting(job.model, layout, job.seq_length, sampled)
    else:
        config = training(job.model, layout, job.seq_length)
    model = {"model_config": config, "arch": dict(network.arch)}
    if family_of(job.model).experts is None:
        if not generates:
            config |= {"do_sample": False, "compute_in_2d": True}
        return {
            "run_mode": "predict" if generates else "finetune",
            "model": model,
            "parallel_config": parallel_config(layout),
            "recompute_config": recompute_config(job.model, layout),
            "processor": _processor(job, paths),
        }
    experts, inputs = network.experts, network_inputs(job.model, layout, job.seq_length)
    assert experts is not None
    moe_config = experts.predicting(inputs) if generates else experts.training(inputs)
    content = {"model": model, "moe_config": moe_config}
    if not generates:
        return {"run_mode": "train", **content}
    content["processor"] = _processor(job, paths)
    return {"run_mode": "predict", "load_ckpt_format": "safetensors", **content}


def _processor(job: Job, paths: Paths) -> Values:
    """Return the processor; mindrlhf pads packed samples with its end token (pack_grouped_data)."""
    tokens = dict(job.tutorial.special_tokens)
    kind = "fast" if tokens or job.reads_tokenizer_json else "qwen"
    tokens = tokens or dict.fromkeys(("unk", "bos", "eos", "pad"), ENDOFTEXT_TEXT)
    if kind == "qwen" and job.model.variant == "instruct":
        tokens["eos"] = "<|im_end|>"
    processor: Values = fill(FIELDS / "processors.yaml", job, paths, tokens)[kind]
    return processor
