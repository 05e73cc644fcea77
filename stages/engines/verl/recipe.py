"""The configuration of a verl run: one YAML file on top of verl's ppo_trainer.

Sources (verl 0.9.1, paths in verl/): trainer/config, workers/config, trainer/ppo/core_algos.py,
trainer/ppo/v1/trainer_base.py, workers/engine/fsdp/transformer_impl.py.
"""

from typing import Any

from stages.engines.outside import dump
from stages.engines.upstream import merged
from stages.engines.verl.job import CPUS_PER_WORKER, DRIVER_CPUS, METRICS, PLUGIN, REWARDS, Job, Paths
from stages.engines.verl.upstream import RECORDS

Values = dict[str, Any]
AGGREGATION = {
    "grpo": "seq-mean-token-mean",
    "dapo": "token-mean",
    "dr_grpo": "seq-mean-token-sum-norm",
}
"""train.loss_type -> actor.loss_agg_mode."""
NO_LIMIT = 1e9
"""Value of clip_ratio_c and clip_grad that has no effect."""
FP32 = {"param_dtype": "fp32", "reduce_dtype": "fp32", "buffer_dtype": "fp32"}
VARIABLES = {
    "HYDRA_FULL_ERROR": "1",
    "RAY_DEDUP_LOGS": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
    "HF_HUB_OFFLINE": "1",
}
"""Environment variables of the driver and of all workers."""
CPU_VARIABLES = {
    "VERL_USE_EXTERNAL_MODULES": "grpoflow_verl_cpu",
    "VERL_PLATFORM": "grpoflow_cpu",
    "RAY_AUTH_MODE": "disabled",  # Ray would write a token into the home directory
    "OMP_NUM_THREADS": "1",  # sums depend on the number of threads
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_worker_niceness": "0",  # Ray's default of 15 starves its workers on a busy machine
}


def variables(job: Job, paths: Paths) -> dict[str, str]:
    """Return the environment variables of all processes."""
    cache = {"HF_DATASETS_CACHE": str(paths.root / "cache")}  # by default in the home directory
    return {**VARIABLES, **(CPU_VARIABLES if job.on_cpu else {}), **cache}


def ray_options(job: Job) -> tuple[str, ...]:
    """Return options of `ray start`; a CPU's worker gets logical CPUs that the machine may not have."""
    cpus = DRIVER_CPUS + CPUS_PER_WORKER * job.cards
    return (*([f"--num-cpus={cpus}"] if job.on_cpu else []), *job.engine.ray_options)


def recipe(job: Job, paths: Paths) -> Values:
    """Return the values of the rendered file, without `upstream`."""
    return {
        "data": _data(job, paths),
        "actor_rollout_ref": {
            "model": _model(job, paths),
            "actor": _actor(job),
            "ref": _ref(job),
            "rollout": _rollout(job),
        },
        "algorithm": {
            "adv_estimator": "grpo",
            "norm_adv_by_std_in_grpo": job.train.scale_advantages,
            "use_kl_in_reward": False,
        },
        "reward": {
            "reward_manager": {
                "source": "importlib",
                "name": "Rewards",
                "module": {"path": str(paths.configs / REWARDS)},
            },
        },
        "trainer": _trainer(job, paths),
        "ray_kwargs": {"ray_init": {"runtime_env": {"env_vars": _worker_variables(job, paths)}}},
    }


def text(job: Job, paths: Paths) -> str:
    """Return the rendered file."""
    defaults = ["ppo_trainer", {"override model_engine": RECORDS[job.engine.strategy]}, "_self_"]
    values = merged(recipe(job, paths), cpu_values(job) if job.on_cpu else {})
    return dump({"defaults": defaults, **values}, job.engine.upstream)


def _worker_variables(job: Job, paths: Paths) -> dict[str, str]:
    """Return the variables for workers of an existing Ray cluster, which does not have the driver's."""
    return {} if job.engine.ray_address is None else {**variables(job, paths), **job.engine.env}


def _data(job: Job, paths: Paths) -> Values:
    return {
        "train_files": str(paths.data),
        "val_files": str(paths.data),  # required, but not used: test_freq is -1
        "val_max_samples": 1,
        "train_batch_size": job.train.prompts_per_step,
        "max_prompt_length": job.tokenize.max_prompt_length,
        "max_response_length": job.rollout.max_tokens,
        "filter_overlong_prompts": False,  # tokenize left them out
        "truncation": "error",
        "shuffle": True,
        "seed": job.seed,
    }


def _model(job: Job, paths: Paths) -> Values:
    return {
        "path": str(paths.model),
        "use_remove_padding": True,
        "enable_gradient_checkpointing": job.layout.train.recompute,
    }


def _actor(job: Job) -> Values:
    train = job.train
    return {
        "strategy": job.engine.strategy,
        "ppo_mini_batch_size": job.mini_batch_size,
        "ppo_micro_batch_size_per_gpu": job.engine.micro_batch_size,
        "ppo_epochs": train.num_iterations,
        "data_loader_seed": job.seed,
        "clip_ratio_low": train.epsilon_low,
        "clip_ratio_high": train.epsilon_high,
        "clip_ratio_c": NO_LIMIT,  # verl's default bounds the loss of negative advantages (dual clip)
        "policy_loss": {"loss_mode": "gspo" if train.importance_sampling_level == "sequence" else "vanilla"},
        "loss_agg_mode": AGGREGATION[train.loss_type],
        "loss_scale_factor": job.rollout.max_tokens if train.loss_type == "dr_grpo" else None,
        "use_kl_loss": train.beta > 0,
        "kl_loss_coef": train.beta,
        "kl_loss_type": "low_var_kl",
        "entropy_coeff": 0,
        "use_torch_compile": False,
        "checkpoint": {"save_contents": ["model", "optimizer", "extra"]},
        "optim": _optimizer(job),
        **_sharding(job, optimizer=True),
    }


def _ref(job: Job) -> Values:
    return {
        "log_prob_micro_batch_size_per_gpu": _forward_batch(job),
        "use_torch_compile": False,
        **_sharding(job, optimizer=False),
    }


def _forward_batch(job: Job) -> int:
    return job.engine.forward_micro_batch_size or job.engine.micro_batch_size


def _optimizer(job: Job) -> Values:
    train = job.train
    values: Values = {
        "lr": train.learning_rate,
        "lr_warmup_steps": train.warmup_steps // train.num_iterations,  # the rate changes once per step
        "weight_decay": train.weight_decay,
        "betas": [train.adam_beta1, train.adam_beta2],
        "clip_grad": NO_LIMIT if train.max_grad_norm is None else train.max_grad_norm,
    }
    if job.engine.strategy == "megatron":
        decay = {"lr_decay_style": train.schedule, "min_lr": train.learning_rate * train.final_share}
        return {**values, **decay, "override_optimizer_config": {"adam_eps": train.adam_epsilon}}
    decay = {"lr_scheduler_type": train.schedule, "min_lr_ratio": train.final_share}
    return {**values, **decay, "override_optimizer_config": {"eps": train.adam_epsilon}}


def _sharding(job: Job, optimizer: bool) -> Values:
    """Return how policy or reference are divided over the cards."""
    layout, offload = job.layout.train, {"param_offload": job.engine.param_offload}
    if optimizer:
        offload["optimizer_offload"] = layout.opt_offload
    if job.engine.strategy == "megatron":
        degrees = {
            "tensor_model_parallel_size": layout.model_parallel,
            "pipeline_model_parallel_size": layout.pipeline_stage,
            "context_parallel_size": layout.context_parallel,
        }
        return {"megatron": {**degrees, **offload, "seed": job.seed}}
    return {
        "ulysses_sequence_parallel_size": layout.context_parallel,
        "fsdp_config": {**offload, "seed": job.seed, "use_torch_compile": False},
    }


def _rollout(job: Job) -> Values:
    rollout = job.rollout
    return {
        "name": job.engine.rollout,
        "n": rollout.num_generations,
        "seed": job.seed,
        "temperature": rollout.temperature,
        "top_p": 1.0 if rollout.top_p is None else rollout.top_p,
        "top_k": -1 if rollout.top_k is None else rollout.top_k,
        "tensor_model_parallel_size": job.layout.generate.model_parallel,
        "gpu_memory_utilization": job.engine.gpu_memory_utilization,
        "log_prob_micro_batch_size_per_gpu": _forward_batch(job),
    }


def _trainer(job: Job, paths: Paths) -> Values:
    train = job.train
    return {
        "device": job.engine.device,
        "nnodes": job.nodes,
        "n_gpus_per_node": min(job.cards, job.engine.cards_per_node),
        "total_training_steps": train.steps,
        "total_epochs": train.steps,
        "save_freq": train.checkpoint_every or train.steps,
        "max_actor_ckpt_to_keep": train.keep_checkpoints,
        "default_local_dir": str(paths.checkpoints),
        "resume_mode": "auto",
        "test_freq": -1,
        "val_before_train": False,
        "rollout_data_dir": str(paths.completions) if train.logged_completions else None,
        "logger": ["console", "file"],
        # verl's file of metrics is PROJECT_NAME/EXPERIMENT_NAME.jsonl: one for each attempt
        "project_name": f"${{oc.env:GRPOFLOW_LOG_DIR,{paths.root}}}",
        "experiment_name": METRICS,
    }


def cpu_values(job: Job) -> Values:
    """Return what a CPU needs besides `recipe`; `upstream` may replace it."""
    plugin = PLUGIN / "grpoflow_verl_cpu"
    fsdp = {"fsdp_config": {"mixed_precision": FP32}}
    values: Values = {
        "data": {"dataloader_num_workers": 0},
        "actor_rollout_ref": {
            "model": {"use_remove_padding": False, "override_config": {"attn_implementation": "sdpa"}},
            "actor": fsdp,
            "ref": fsdp,
            "rollout": {
                "name": "hf",
                "dtype": "float32",
                "tensor_model_parallel_size": job.cards,  # one server for all workers
                "agent": {"num_workers": 1, "agent_loop_config_path": str(plugin / "agent_loops.yaml")},
            },
        },
        "reward": {"num_workers": 1},
        "transfer_queue": {"backend": {"SimpleStorage": {"num_data_storage_units": 1}}},
    }
    if not job.engine.upstream.get("algorithm", {}).get("filter_groups", {}).get("enable"):
        # verl does not filter groups with a custom sampler
        sampler = {"path": "pkg://grpoflow_verl_cpu.ordered", "name": "OrderedReplayBuffer"}
        values["trainer"] = {"v1": {"sampler": {"custom_sampler": sampler}}}
    return values
