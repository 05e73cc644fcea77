"""Files, arguments and variables of mindrlhf: grpo_config.yaml, and a model file for mindformers per role.

Source: mindrlhf 0cd087455 and e8a8fc1, mindrlhf/configs/grpo_configs.py and the YAML next to main.py; of the
model files mindformers 051d65f and mindrlhf's model_configs. Comments explain the values that differ from
upstream's defaults. Model files of networks with experts have other sections (end of _model_file).
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stages.base.layout import ROLES, Recompute, Role, RoleLayout
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
from stages.engines.mindrlhf.vocabulary import special_tokens
from stages.engines.upstream_keys import Rendered
from stages.models.families import family_of, network_of

Values = dict[str, Any]
CONFIG, RESUME_CONFIG = "grpo_config.yaml", "grpo_config_resume.yaml"
FILES: dict[Role, str] = {
    "train": "finetune.yaml",
    "reference": "reference.yaml",
    "generate": "predict.yaml",
}
"""Role -> its model file."""
_CHECKPOINTS = "=grpoflow reads the checkpoints there"
_WEIGHTS = "=it is the directory of the weights at the start"
_FAMILY = "=the model's family decides it"
# Key of grpo_config.yaml -> grpoflow's key that sets it, or "=" and why it must stay. Rendered constants that
# a user may change (deterministic, sink_size) have no line.
_GRPO_CONFIG: Rendered = {
    "rl_config.model_name": _FAMILY,
    "rl_config.dataset_file": "=it is the file that tokenize wrote",
    "rl_config.tokenizer_type": "engine.tokenizer",
    "rl_config.tokenizer_dir": "=it is the model's directory",
    "rl_config.epochs": "engine.epochs",
    "rl_config.batch_size": "engine.batch_size",
    "rl_config.seq_length": "engine.seq_length",
    "rl_config.use_parallel": "=the layouts need it",
    "rl_config.load_ckpt_format": "engine.load_ckpt_format",
    "rl_config.parallel_mode": "=the layouts need it",
    "rl_config.save_strategy_dir": "=grpoflow reads the strategies there",
    "rl_config.packing": "=engine.pack_num=1 puts one sample into each row",
    "rl_config.pack_num": "engine.pack_num",
    "rl_config.save_prompt_completions_data": "train.logged_completions",
    "rl_config.save_prompt_completions_interval": "=the report shows the completions of each step",
    "rl_config.save_prompt_completions_dir": "=grpoflow reads the completions there",
    "rl_config.reshard_mem_opt_level": "engine.reshard_mem_opt_level",
    "rl_config.save_ckpt_interval": "train.checkpoint_every",
    "rl_config.save_max_ckpt_num": "train.keep_checkpoints",
    "rl_config.save_ckpt_format": "=grpoflow reads safetensors",
    "rl_config.enable_reshard_optimizer": "engine.enable_reshard_optimizer",
    "rl_config.enable_full_monitor": "engine.full_monitor",
    "rl_config.save_checkpoint_dir": _CHECKPOINTS,
    "rl_config.micro_batch_interleaved": "engine.micro_batch_interleave_num",
    "rl_config.beta": "train.beta",
    "rl_config.num_generations": "rollout.num_generations",
    "rl_config.num_rollouts": "train.prompts_per_step",
    "rl_config.chunk_size": "engine.chunk_size",
    "rl_config.num_iterations": "train.num_iterations",
    "rl_config.epsilon_low": "train.epsilon_low",
    "rl_config.epsilon_high": "train.epsilon_high",
    "rl_config.seed": "seed",
    "actor_config.load": _WEIGHTS,
    "actor_config.save": _CHECKPOINTS,
    "actor_config.model_config": "=it is a rendered file, whose keys are engine.upstream.model.train",
    "actor_config.parallel_config.micro_batch_interleave_num": (
        "=mindrlhf has no such key there; set engine.micro_batch_interleave_num"
    ),
    "actor_config.enable_parallel_optimizer": "layout.train.enable_parallel_optimizer",
    "actor_config.optimizer.adam_beta1": "train.adam_beta1",
    "actor_config.optimizer.adam_beta2": "train.adam_beta2",
    "actor_config.optimizer.eps": "train.adam_epsilon",
    "actor_config.optimizer.weight_decay": "train.weight_decay",
    "actor_config.optimizer.opt_offload": "layout.train.opt_offload",
    "actor_config.lr_schedule.lr": "train.learning_rate",
    "actor_config.lr_schedule.min_lr": "train.final_share",
    "actor_config.lr_schedule.warmup_step": "train.warmup_steps",
    "actor_config.lr_schedule.decay_steps": "train.steps",
    "actor_config.lr_schedule.lr_decay_style": "train.schedule",
    "ref_config.model_config": "=it is a rendered file, whose keys are engine.upstream.model.reference",
    "ref_config.load": _WEIGHTS,
    "ref_config.ref_model_batch_size": "engine.ref_model_batch_size",
    "ref_config.sync_ref_model": "train.ref_model_sync_steps",
    "ref_config.ref_model_sync_steps": "train.ref_model_sync_steps",
    "reward_config.verifier_function": "reward.functions",
    "reward_config.verifier_weight": "reward.weights",
    "generate_config.model_config": "=it is a rendered file, whose keys are engine.upstream.model.generate",
    "generate_config.load": _WEIGHTS,
    "generate_config.infer_model_batch_size": "engine.infer_model_batch_size",
    "generate_config.use_vllm": "engine.use_vllm",
    "generate_config.hf_config_path": "=it is the model's config.json",
    "generate_config.block_size": "engine.block_size",
    "generate_config.max_model_len": "engine.max_model_len",
    "generate_config.max_num_batched_tokens": "engine.max_model_len",
    "generate_config.max_num_seqs": "engine.max_num_seqs",
    "generate_config.max_prompt_length": "tokenize.max_prompt_length",
    "generate_config.gpu_memory_utilization": "engine.gpu_memory_utilization",
    "generate_config.sampling_config.temperature": "rollout.temperature",
    "generate_config.sampling_config.repetition_penalty": "rollout.repetition_penalty",
    "generate_config.sampling_config.top_p": "rollout.top_p",
    "generate_config.sampling_config.top_k": "rollout.top_k",
    "generate_config.sampling_config.bos_token_id": "model.bos_token_id",
    "generate_config.sampling_config.eos_token_id": "model.eos_token_id",
    "generate_config.sampling_config.pad_token_id": "model.pad_token_id",
    "generate_config.sampling_config.max_tokens": "rollout.max_tokens",
    "generate_config.sampling_config.min_tokens": "rollout.min_tokens",
    "generate_config.sampling_config.min_p": "rollout.min_p",
    "context.max_device_memory": "engine.device_memory_gib",
    "context.device_id": "=each worker has its card",
}
_SECTIONS: dict[Role, str] = {
    "train": "actor_config",
    "reference": "ref_config",
    "generate": "generate_config",
}
"""Role -> its section of grpo_config.yaml."""
_DEGREES = (
    "data_parallel", "model_parallel", "pipeline_stage", "expert_parallel", "use_seq_parallel",
    "micro_batch_num", "vocab_emb_dp", "context_parallel",
)  # fmt: skip
_MODEL_CONFIG: Rendered = {
    "type": _FAMILY,
    "seq_length": "engine.seq_length",
    "hidden_size": "model.hidden_size",
    "num_layers": "model.num_hidden_layers",
    "num_heads": "model.num_attention_heads",
    "n_kv_heads": "model.num_key_value_heads",
    "intermediate_size": "model.intermediate_size",
    "vocab_size": "model.vocab_size",
    "max_position_embedding": "model.max_position_embeddings",
    "rms_norm_eps": "model.rms_norm_eps",
    "bos_token_id": "model.bos_token_id",
    "eos_token_id": "model.eos_token_id",
    "pad_token_id": "model.pad_token_id",
    "theta": "model.rope_theta",
    "qkv_concat": "model.qkv_concat",
    "tie_word_embeddings": "model.tie_word_embeddings",
    "checkpoint_name_or_path": "=mindrlhf replaces it by the directory of the weights at the start",
    "parallel_config": "=mindrlhf replaces it by the layout's degrees",
    "moe_config": "=its keys are in the section moe_config",
    **{
        name: f"model.deepseek_v3.{name}"
        for name in ("kv_lora_rank", "q_lora_rank", "qk_rope_head_dim", "v_head_dim", "qk_nope_head_dim")
    },
}
_TRAINING: Rendered = {
    "param_init_type": "model.param_init_type",
    "max_position_embeddings": "model.deepseek_v3.rope_original_length",
}
_GENERATION: Rendered = {
    "param_init_type": "model.torch_dtype",
    "max_position_embeddings": "model.max_position_embeddings",
    "max_decode_length": "rollout.max_tokens",
    "min_decode_length": "rollout.min_tokens",
    "repetition_penalty": "rollout.repetition_penalty",
    "temperature": "rollout.temperature",
    "top_k": "rollout.top_k",
    "top_p": "rollout.top_p",
    "block_size": "engine.block_size",
}
_EXPERTS: Rendered = {
    "expert_num": "model.deepseek_v3.n_routed_experts",
    "num_experts_chosen": "model.deepseek_v3.num_experts_per_tok",
    "shared_expert_num": "model.deepseek_v3.n_shared_experts",
    "routed_scaling_factor": "model.deepseek_v3.routed_scaling_factor",
    "first_k_dense_replace": "model.deepseek_v3.first_k_dense_replace",
    "moe_intermediate_size": "model.deepseek_v3.moe_intermediate_size",
    "topk_group": "model.deepseek_v3.topk_group",
    "n_group": "model.deepseek_v3.n_group",
}
_EXPERTS_IN_TRAINING: Rendered = {"norm_topk_prob": "model.deepseek_v3.norm_topk_prob"}
_EXPERTS_IN_GENERATION: Rendered = {"norm_topk_prob": "=the model decides it"}


def _rendered_for(role: Role) -> dict[str, str]:
    """Return what is rendered from a role's layout, and the keys of its model file."""
    config, model = f"grpo_config.{_SECTIONS[role]}", f"model.{role}.model.model_config"
    rendered = {f"{config}.parallel_config.{key}": f"layout.{role}.{key}" for key in _DEGREES}
    if role != "generate":
        rendered |= {
            f"{config}.recompute_config.{key}": f"layout.{role}.{key}"
            for key in ("recompute", "select_recompute")
        }
    rendered[f"{config}.offset"] = rendered[f"{model}.offset"] = f"layout.{role}.offset"
    generates = role == "generate"
    keys = {**_MODEL_CONFIG, **(_GENERATION if generates else _TRAINING)}
    experts = {**_EXPERTS, **(_EXPERTS_IN_GENERATION if generates else _EXPERTS_IN_TRAINING)}
    rendered |= {f"{model}.{key}": reason for key, reason in keys.items()}
    return rendered | {f"model.{role}.moe_config.{key}": reason for key, reason in experts.items()}


RENDERED: Rendered = {
    **{f"grpo_config.{key}": reason for key, reason in _GRPO_CONFIG.items()},
    **{key: reason for role in ROLES for key, reason in _rendered_for(role).items()},
}
"""Keys that engine.upstream must not set -> grpoflow's key, or "=" and the reason. Add a line to a table
above, not here."""
RENDERED_WITH_EXPERTS: Rendered = {
    **{
        f"model.generate.model.model_config.{key}": "model.torch_dtype"
        for key in ("layernorm_compute_type", "softmax_compute_type", "rotary_dtype", "router_dense_type")
    },
    **{f"model.{role}.model.model_config.scaling_factor": "model.deepseek_v3.rope_factor" for role in ROLES},
}
"""Further ones for families with experts; in other networks these keys are constants."""


def groups(job: Job) -> list[str]:
    """Return the groups of engine.upstream; mindrlhf replaces all other sections of the model files."""
    models = [f"model.{role}.model.model_config" for role in FILES]
    with_experts = family_of(job.model).experts is not None
    experts = [f"model.{role}.moe_config" for role in FILES] if with_experts else []
    return ["grpo_config", *models, *experts]


def added(job: Job) -> dict[str, Mapping[str, Any]]:
    """Return the keys of engine.upstream for each rendered file."""
    keys = job.engine.upstream
    models = {file: keys.get("model", {}).get(role, {}) for role, file in FILES.items()}
    return {**models, **dict.fromkeys((CONFIG, RESUME_CONFIG), keys.get("grpo_config", {}))}


def all_configs(job: Job, paths: Paths, resume: bool) -> dict[str, Values]:
    """Return the content of every YAML file by name."""
    models = {file: _model_file(job, role, paths) for role, file in FILES.items()}
    return {CONFIG: grpo_config(job, paths, resume), **models}


def grpo_config(job: Job, paths: Paths, resume: bool) -> Values:
    """Return grpo_config.yaml; contract e8a8fc1 has keys and sections that 0cd087455 does not know."""
    context = {
        "mode": 0,
        "device_target": "Ascend",
        "max_call_depth": 10000,
        "max_device_memory": f"{job.engine.device_memory_gib}GB",
        "save_graphs": False,
        "save_graphs_path": f"{paths.root}/graph",
        "device_id": 0,
        "jit_config": {"jit_level": "O0"},
        "memory_optimize_level": "O0",
        "ascend_config": {"precision_mode": "must_keep_origin_dtype"},
    }
    watching = {
        "monitor_config": {
            "host_monitor_interval": -1.0,
            "host_monitor_steps": [],
            "host_memory_protection": False,
            "host_max_memory_threshold": 0.95,
        },
        "profiler_config": {
            "profile": False,
            "stage": "all",
            "profile_save_path": f"{paths.root}/profile",
        },
    }
    return {
        "rl_config": _rl_config(job, paths, resume),
        "actor_config": _actor_config(job, paths),
        "ref_config": _ref_config(job, paths),
        "reward_config": {
            "verifier_function": [job.verifiers[name] for name in job.reward.functions],
            "verifier_weight": list(job.reward.weights),
        },
        "generate_config": _generate_config(job, paths),
        **(watching if job.is_newer else {}),
        "context": context,
    }


def _rl_config(job: Job, paths: Paths, resume: bool) -> Values:
    engine, train = job.engine, job.train
    # With ckpt, train_worker.py's reload_ckpt would look for .ckpt files; what it saved is safetensors.
    reloads = resume and engine.load_ckpt_format == "ckpt"
    newer = job.is_newer
    return {
        "model_name": job.tutorial.model_name,
        "deterministic": "OFF",
        "align_type": "rlhf_stages",
        "dataset_file": str(paths.dataset),
        **({"tokenizer_type": tokenizer_type(job)} if newer else {}),
        "tokenizer_dir": str(tokenizer_path(job, paths)),
        "epochs": engine.epochs,
        "batch_size": engine.batch_size,
        "sink_size": 1,
        "seq_length": job.seq_length,
        "use_parallel": True,
        "load_ckpt_format": "ms_safetensors" if reloads else engine.load_ckpt_format,
        "parallel_mode": "semi_auto_parallel",
        "enable_compile_cache": False,
        "save_strategy_dir": f"{paths.root}/strategy",
        "save_data_file": "",  # otherwise every eighth rank logs and rewrites each step's samples
        "packing": True,
        "pack_num": engine.pack_num,
        "save_prompt_completions_data": train.logged_completions > 0,
        "save_prompt_completions_interval": 1,
        "save_prompt_completions_dir": f"{paths.root}/completions",
        "reshard_mem_opt_level": engine.reshard_mem_opt_level,
        "reshard_mode": 0,
        "save_ckpt_interval": train.checkpoint_every,
        "save_max_ckpt_num": checkpoints_to_keep(train.keep_checkpoints),
        "save_ckpt_format": "safetensors",
        "enable_reshard_optimizer": engine.enable_reshard_optimizer,
        "tensorboard": False,  # event files are written from the metrics
        "tensorboard_dir": f"{paths.root}/tensorboard",
        "tensorboard_queue_size": 10,
        **({"enable_full_monitor": engine.full_monitor, "calculate_entropy": False} if newer else {}),
        "save_checkpoint_dir": str(paths.checkpoints),
        "performance_stats": False,
        "micro_batch_interleaved": engine.micro_batch_interleave_num,
        "beta": train.beta,
        "num_generations": job.rollout.num_generations,
        "num_rollouts": job.num_rollouts,
        "chunk_size": engine.chunk_size,
        "gen_experience_kwargs": False,
        "num_iterations": train.num_iterations,
        "epsilon_low": train.epsilon_low,
        "epsilon_high": train.epsilon_high,
        **({"enable_oldpolicy": True} if newer else {}),
        "seed": job.seed,
    }


def _actor_config(job: Job, paths: Paths) -> Values:
    train, layout = job.train, job.layout.train
    return {
        "load": str(paths.actor),
        "save": str(paths.checkpoints),
        "model_config": f"{paths.configs}/finetune.yaml",
        "parallel_config": parallel_config(layout),
        "recompute_config": _recompute_config(layout),
        "offset": list(layout.offset) or 0,
        "enable_parallel_optimizer": layout.enable_parallel_optimizer,
        "enable_alltoall": False,
        "use_eod_attn_mask_compression": True,
        **({"loss_scale_value": 1} if job.is_newer else {}),
        "optimizer": {
            "type": "adamw",
            "adam_beta1": train.adam_beta1,
            "adam_beta2": train.adam_beta2,
            "eps": train.adam_epsilon,
            "weight_decay": train.weight_decay,
            "opt_offload": layout.opt_offload,
        },
        "lr_schedule": {
            "lr": train.learning_rate,
            "min_lr": train.learning_rate * train.final_share,
            "warmup_step": train.warmup_steps,
            "decay_steps": train.updates,  # its schedule counts updates
            "lr_decay_style": "cosine" if train.schedule == "cosine" else "linear",
        },
    }


def _ref_config(job: Job, paths: Paths) -> Values:
    layout, sync_steps = job.layout.reference, job.train.ref_model_sync_steps
    return {
        "model_config": f"{paths.configs}/reference.yaml",
        "load": str(paths.reference),
        "ref_model_batch_size": job.engine.ref_model_batch_size,
        "sync_ref_model": sync_steps > 0,
        "ref_model_sync_steps": sync_steps or 50,
        "parallel_config": parallel_config(layout),
        "recompute_config": _recompute_config(layout),
        "offset": list(layout.offset) or 0,
        "use_eod_attn_mask_compression": True,
    }


def _generate_config(job: Job, paths: Paths) -> Values:
    engine, rollout, layout, ids = job.engine, job.rollout, job.layout.generate, job.model.token_ids
    return {
        "model_config": f"{paths.configs}/predict.yaml",
        "load": str(paths.generate),
        "infer_model_batch_size": engine.infer_model_batch_size,
        "parallel_config": parallel_config(layout),
        "offset": list(layout.offset) or 0,
        "use_eod_attn_mask_compression": True,
        "use_vllm": engine.use_vllm,
        "hf_config_path": f"{paths.tokenizer}/config.json",
        "block_size": engine.block_size,
        "max_model_len": job.max_model_len,
        "max_num_batched_tokens": job.max_model_len,
        "max_num_seqs": job.max_num_seqs,
        "max_prompt_length": job.tokenize.max_prompt_length,
        "num_scheduler_steps": 1,  # vLLM 0.8 always sets it to 1
        "gpu_memory_utilization": engine.gpu_memory_utilization,
        "trust_remote_code": False,  # neither Qwen2.5 nor DeepSeek-V3 needs any
        "sampling_config": {
            "temperature": rollout.temperature,
            "repetition_penalty": rollout.repetition_penalty,
            "top_p": 1.0 if rollout.top_p is None else rollout.top_p,
            "top_k": job.model.vocab_size if rollout.top_k is None else rollout.top_k,
            "bos_token_id": ids.bos,
            "eos_token_id": list(ids.eos),
            "pad_token_id": ids.pad,
            "detokenize": False,
            "logprobs": 1,
            "max_tokens": rollout.max_tokens,
            "min_tokens": rollout.min_tokens,
            "min_p": 0.0 if rollout.min_p is None else rollout.min_p,
        },
    }


def _recompute_config(layout: RoleLayout) -> Values:
    """Return recompute_config of grpo_config.yaml; mindformers spreads true over the layers itself."""

    def plain(value: Recompute) -> bool | list[int]:
        return value if isinstance(value, bool) else list(value)

    select = layout.select_recompute
    operators = {name: plain(of) for name, of in select.items()} if isinstance(select, Mapping) else None
    return {
        "recompute": plain(layout.recompute),
        "select_recompute": plain(select) if not isinstance(select, Mapping) else operators,
        "select_comm_recompute": False,
        "parallel_optimizer_comm_recompute": False,
        "mp_comm_recompute": True,
        "recompute_slice_activation": False,
    }


def tokenizer_type(job: Job) -> str:
    """Return the tokenizer class of e8a8fc1 (models/model_utils.py, TokenizerFactory).

    "deepseek" is its fast tokenizer for any tokenizer.json; 0cd087455 calls it "llama" (vocabulary.py).
    """
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
    if network.experts is None:
        if not generates:
            config |= {"do_sample": False, "compute_in_2d": True}
        return {
            "run_mode": "predict" if generates else "finetune",
            "model": model,
            "parallel_config": parallel_config(layout),
            "recompute_config": recompute_config(job.model, layout),
            "processor": _processor(job, paths),
        }
    inputs = network_inputs(job.model, layout, job.seq_length)
    if not generates:
        return {"run_mode": "train", "model": model, "moe_config": network.experts.training(inputs)}
    return {
        "run_mode": "predict",
        "load_ckpt_format": "safetensors",
        "model": model,
        "moe_config": network.experts.predicting(inputs),
        "processor": _processor(job, paths),
    }


def _processor(job: Job, paths: Paths) -> Values:
    """Return the processor; mindrlhf pads packed samples with its end token (pack_grouped_data)."""
    tokens = special_tokens(job.model)
    if job.tutorial.special_tokens or job.reads_tokenizer_json:
        fast = {  # reads tokenizer.json
            "type": "LlamaTokenizerFast",
            "unk_token": tokens["unk"],
            "bos_token": tokens["bos"],
            "eos_token": tokens["eos"],
            "pad_token": tokens["pad"],
            "vocab_file": f"{paths.tokenizer}/tokenizer.json",
            "tokenizer_file": f"{paths.tokenizer}/tokenizer.json",
        }
        return {"return_tensors": "ms", "tokenizer": fast, "type": "LlamaProcessor"}
    qwen = {  # mindformers' class for Qwen2.5
        "type": "Qwen2Tokenizer",
        "model_max_length": job.max_model_len,
        "vocab_file": f"{paths.tokenizer}/vocab.json",
        "merges_file": f"{paths.tokenizer}/merges.txt",
        "unk_token": tokens["unk"],
        "pad_token": tokens["pad"],
        "eos_token": "<|im_end|>" if job.model.variant == "instruct" else tokens["eos"],
    }
    return {"return_tensors": "ms", "tokenizer": qwen, "type": "Qwen2Processor"}


def arguments(job: Job, paths: Paths, resume: bool) -> list[str]:
    """Return the arguments of main.py, which repeat what the YAML says."""
    if job.is_newer:
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
        "verifier_function": ",".join(job.verifiers[name] for name in job.reward.functions),
        "verifier_weight": ",".join(map(str, job.reward.weights)),
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
    if engine.use_vllm and family_of(job.model).experts is not None:
        # vllm-mindspore reads the experts' shape there
        variables["MINDFORMERS_MODEL_CONFIG"] = str(paths.configs / "predict.yaml")
    return variables
