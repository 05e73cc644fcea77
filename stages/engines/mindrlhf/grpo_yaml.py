"""Content of grpo_config.yaml, with the keys that the version of mindrlhf knows.

Source: mindrlhf 0cd087455 and e8a8fc1, mindrlhf/configs/grpo_configs.py and the YAML next to main.py.
Comments explain the values that differ from upstream's defaults.
"""

from pathlib import Path
from typing import Any

from stages.base.layout import RoleLayout
from stages.engines.mindformers.model_sections import parallel_config
from stages.engines.mindrlhf.contract import ABSENT
from stages.engines.mindrlhf.job import Job, Paths

Values = dict[str, Any]


def grpo_config(job: Job, paths: Paths, resume: bool) -> Values:
    """Return all sections of grpo_config.yaml."""
    sections = {
        "rl_config": _rl(job, paths, resume),
        "actor_config": _actor(job, paths),
        "ref_config": _reference(job, paths),
        "reward_config": {
            "verifier_function": [job.verifiers[name] for name in job.reward.functions],
            "verifier_weight": list(job.reward.weights),
        },
        "generate_config": _generate(job, paths),
        "monitor_config": {
            "host_monitor_interval": -1.0,
            "host_monitor_steps": [],
            "host_memory_protection": False,
            "host_max_memory_threshold": 0.95,
        },
        "profiler_config": {
            "profile": False,
            "stage": "all",
            "profile_save_path": str(paths.root / "profile"),
        },
        "context": {
            "mode": 0,
            "device_target": "Ascend",
            "max_call_depth": 10000,
            "max_device_memory": f"{job.engine.device_memory_gib}GB",
            "save_graphs": False,
            "save_graphs_path": str(paths.root / "graph"),
            "device_id": 0,
            "jit_config": {"jit_level": "O0"},
            "memory_optimize_level": "O0",
            "ascend_config": {"precision_mode": "must_keep_origin_dtype"},
        },
    }
    absent = ABSENT[job.version]
    return {
        section: {key: value for key, value in values.items() if f"{section}.{key}" not in absent}
        for section, values in sections.items()
        if section not in absent
    }


def _rl(job: Job, paths: Paths, resume: bool) -> Values:
    engine, train = job.engine, job.train
    # With ckpt, train_worker.py's reload_ckpt would look for .ckpt files; what it saved is safetensors.
    reload = resume and engine.load_ckpt_format == "ckpt"
    return {
        "model_name": job.tutorial.model_name,
        "deterministic": "OFF",
        "align_type": "rlhf_stages",
        "dataset_file": str(paths.dataset),
        "tokenizer_type": tokenizer_type(job),
        "tokenizer_dir": str(tokenizer_path(job, paths)),
        "epochs": engine.epochs,
        "batch_size": engine.batch_size,
        "sink_size": 1,
        "seq_length": job.seq_length,
        "use_parallel": True,
        "load_ckpt_format": "ms_safetensors" if reload else engine.load_ckpt_format,
        "parallel_mode": "semi_auto_parallel",
        "enable_compile_cache": False,
        "save_strategy_dir": str(paths.strategies),
        "save_data_file": "",  # otherwise every eighth rank logs and rewrites each step's samples
        "packing": True,
        "pack_num": engine.pack_num,
        "save_prompt_completions_data": train.logged_completions > 0,
        "save_prompt_completions_interval": 1,
        "save_prompt_completions_dir": str(paths.completions),
        "reshard_mem_opt_level": engine.reshard_mem_opt_level,
        "reshard_mode": 0,
        "save_ckpt_interval": train.checkpoint_every,
        "save_max_ckpt_num": train.keep_checkpoints,
        "save_ckpt_format": "safetensors",
        "enable_reshard_optimizer": engine.enable_reshard_optimizer,
        "tensorboard": False,  # event files are written from the metrics
        "tensorboard_dir": str(paths.root / "tensorboard"),
        "tensorboard_queue_size": 10,
        "enable_full_monitor": engine.full_monitor,
        "calculate_entropy": False,
        "save_checkpoint_dir": str(paths.checkpoints),
        "performance_stats": False,
        "micro_batch_interleaved": 1,
        "beta": train.beta,
        "num_generations": job.rollout.num_generations,
        "num_rollouts": job.num_rollouts,
        "chunk_size": engine.chunk_size,
        "gen_experience_kwargs": False,
        "num_iterations": train.num_iterations,
        "epsilon_low": train.epsilon_low,
        "epsilon_high": train.epsilon_high,
        "enable_oldpolicy": True,
        "seed": job.seed,
    }


def tokenizer_type(job: Job) -> str:
    """Return the tokenizer class of e8a8fc1 (models/model_utils.py, TokenizerFactory)."""
    return "deepseek" if job.reads_tokenizer_json else job.tutorial.name


def tokenizer_path(job: Job, paths: Paths) -> Path:
    """Return the tokenizer's directory; for 0cd087455 its tokenizer.json (grpo_trainer.py:238)."""
    is_file = job.reads_tokenizer_json and job.version == "0cd087455"
    return paths.tokenizer / "tokenizer.json" if is_file else paths.tokenizer


def _actor(job: Job, paths: Paths) -> Values:
    layout, train = job.layout.train, job.train
    return {
        "load": str(paths.actor),
        "save": str(paths.checkpoints),
        "model_config": str(paths.configs / "finetune.yaml"),
        "parallel_config": parallel_config(layout),
        "recompute_config": _recompute(layout),
        "offset": list(layout.offset) or 0,
        "enable_parallel_optimizer": layout.enable_parallel_optimizer,
        "enable_alltoall": False,
        "use_eod_attn_mask_compression": True,
        "loss_scale_value": 1,
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
            "min_lr": train.learning_rate * (1.0 if train.schedule == "constant" else train.final_share),
            "warmup_step": train.warmup_steps,
            "decay_steps": train.updates,  # its schedule counts updates
            "lr_decay_style": "cosine" if train.schedule == "cosine" else "linear",
        },
    }


def _reference(job: Job, paths: Paths) -> Values:
    layout = job.layout.reference
    return {
        "model_config": str(paths.configs / "reference.yaml"),
        "load": str(paths.reference),
        "ref_model_batch_size": job.engine.ref_model_batch_size,
        "sync_ref_model": job.train.ref_model_sync_steps > 0,
        "ref_model_sync_steps": job.train.ref_model_sync_steps or 50,
        "parallel_config": parallel_config(layout),
        "recompute_config": _recompute(layout),
        "offset": list(layout.offset) or 0,
        "use_eod_attn_mask_compression": True,
    }


def _generate(job: Job, paths: Paths) -> Values:
    engine, rollout, ids, layout = job.engine, job.rollout, job.model.token_ids, job.layout.generate
    return {
        "model_config": str(paths.configs / "predict.yaml"),
        "load": str(paths.generate),
        "infer_model_batch_size": engine.infer_model_batch_size,
        "parallel_config": parallel_config(layout),
        "offset": list(layout.offset) or 0,
        "use_eod_attn_mask_compression": True,
        "use_vllm": engine.use_vllm,
        "hf_config_path": str(paths.tokenizer / "config.json"),
        "block_size": engine.block_size,
        "max_model_len": job.max_model_len,
        "max_num_batched_tokens": job.max_model_len,
        "max_num_seqs": engine.max_num_seqs,
        "max_prompt_length": job.tokenize.max_prompt_length,
        "num_scheduler_steps": 1,  # vLLM 0.8 always sets it to 1
        "gpu_memory_utilization": engine.gpu_memory_utilization,
        "trust_remote_code": False,  # neither Qwen2.5 nor DeepSeek-V3 needs any
        "sampling_config": {
            "temperature": rollout.temperature,
            "repetition_penalty": job.rollout.repetition_penalty,
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


def _recompute(layout: RoleLayout) -> Values:
    return {
        "recompute": layout.recompute,
        "select_recompute": layout.select_recompute,
        "select_comm_recompute": False,
        "parallel_optimizer_comm_recompute": False,
        "mp_comm_recompute": True,
        "recompute_slice_activation": False,
    }
