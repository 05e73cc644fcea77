"""What grpoflow renders for a verl run: its configuration, environment variables and options of Ray.

The configuration is one YAML file on top of verl's own ppo_trainer.yaml, whose names and order it has.
Sources (verl 0.9.1, paths in verl/): trainer/config, workers/config, trainer/ppo/core_algos.py,
trainer/ppo/v1/trainer_base.py, workers/engine/fsdp/transformer_impl.py.
"""

from typing import Any

from stages.engines.outside import dump
from stages.engines.upstream_keys import Rendered, merged
from stages.engines.verl import agent, inference, separate
from stages.engines.verl.job import CPUS_PER_WORKER, DRIVER_CPUS, METRICS, REWARDS, Job, Paths

Values = dict[str, Any]
MODEL_ENGINES = {"fsdp2": "dp", "megatron": "megatron"}
"""engine.strategy -> verl's model_engine, a choice of its configuration."""
AGGREGATION = {
    "grpo": "seq-mean-token-mean",
    "dapo": "token-mean",
    "dr_grpo": "seq-mean-token-sum-norm",
    "cispo": "token-mean",
    "sapo": "seq-mean-token-mean",  # verl's sapo has no other; KL and entropy read the key
}
"""train.loss_type -> actor.loss_agg_mode."""
ESTIMATORS = {
    "grpo": "grpo",
    "dr_grpo": "grpo",  # with norm_adv_by_std_in_grpo=false
    "rloo": "rloo",
    "reinforce_plus_plus": "reinforce_plus_plus",
}
"""train.advantages -> algorithm.adv_estimator."""
KL_LOSS_TYPES = {"k1": "kl", "k2": "mse", "k3": "low_var_kl"}
"""train.kl_estimator -> actor.kl_loss_type (core_algos.py, kl_penalty_forward); none is abs."""
NO_LIMIT = 1e9
"""Value of clip_grad and clip_ratio_c that has no effect."""

PATH = "=it is a path of this run"
FROM_REWARD = "=section reward configures the rewards"
FROM_NODES = "=launcher.cards_per_node decides it"
METRICS_FILE = "=metrics are read from this file"
RESUMING = "=resuming reads it"
PROOF = "=it changes the proof that a checkpoint is complete"
RENDERED: Rendered = {
    **inference.RENDERED,
    **separate.RENDERED,
    **agent.RENDERED,
    "data.train_files": PATH,
    "data.val_files": PATH,
    "data.train_batch_size": "train.prompts_per_step",
    "data.max_prompt_length": "tokenize.max_prompt_length",
    "data.max_response_length": "rollout.max_tokens",
    "data.seed": "seed",
    "actor_rollout_ref.model.path": PATH,
    "actor_rollout_ref.model.enable_gradient_checkpointing": "layout.train.recompute",
    "actor_rollout_ref.model.lora_rank": "train.lora_rank",
    "actor_rollout_ref.model.lora.rank": "train.lora_rank",
    "actor_rollout_ref.model.lora_adapter_path": "=training begins with a new adapter of train.lora_rank",
    "actor_rollout_ref.actor.strategy": "engine.strategy",
    "actor_rollout_ref.actor.ppo_mini_batch_size": "engine.mini_batch_size",
    "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu": "engine.micro_batch_size",
    "actor_rollout_ref.actor.ppo_epochs": "train.num_iterations",
    "actor_rollout_ref.actor.data_loader_seed": "seed",
    "actor_rollout_ref.actor.clip_ratio_low": "train.epsilon_low",
    "actor_rollout_ref.actor.clip_ratio_high": "train.epsilon_high",
    "actor_rollout_ref.actor.clip_ratio_c": "train.clip_ratio_c",
    "actor_rollout_ref.actor.tau_pos": "train.sapo_temperature_pos",
    "actor_rollout_ref.actor.tau_neg": "train.sapo_temperature_neg",
    "actor_rollout_ref.actor.policy_loss.loss_mode": "train.loss_type",
    "actor_rollout_ref.actor.loss_agg_mode": "train.loss_type",
    "actor_rollout_ref.actor.loss_scale_factor": "train.loss_type",
    "actor_rollout_ref.actor.use_kl_loss": "train.beta",
    "actor_rollout_ref.actor.kl_loss_coef": "train.beta",
    "actor_rollout_ref.actor.kl_loss_type": "train.kl_estimator",
    "actor_rollout_ref.actor.entropy_coeff": "train.entropy_coeff",
    "actor_rollout_ref.actor.checkpoint.save_contents": RESUMING,
    "actor_rollout_ref.actor.checkpoint.load_contents": RESUMING,
    "actor_rollout_ref.actor.optim.lr": "train.learning_rate",
    "actor_rollout_ref.actor.optim.lr_warmup_steps": "train.warmup_steps",
    "actor_rollout_ref.actor.optim.weight_decay": "train.weight_decay",
    "actor_rollout_ref.actor.optim.betas": "train.adam_beta1",
    "actor_rollout_ref.actor.optim.clip_grad": "train.max_grad_norm",
    "actor_rollout_ref.actor.optim.lr_scheduler_type": "train.schedule",
    "actor_rollout_ref.actor.optim.lr_decay_style": "train.schedule",
    "actor_rollout_ref.actor.optim.min_lr_ratio": "train.final_share",
    "actor_rollout_ref.actor.optim.min_lr": "train.final_share",
    "actor_rollout_ref.actor.optim.override_optimizer_config": "train.adam_epsilon",
    "actor_rollout_ref.actor.ulysses_sequence_parallel_size": "layout.train.context_parallel",
    "actor_rollout_ref.actor.fsdp_config.param_offload": "engine.param_offload",
    "actor_rollout_ref.actor.fsdp_config.optimizer_offload": "layout.train.opt_offload",
    "actor_rollout_ref.actor.fsdp_config.seed": "seed",
    "actor_rollout_ref.actor.megatron.tensor_model_parallel_size": "layout.train.model_parallel",
    "actor_rollout_ref.actor.megatron.pipeline_model_parallel_size": "layout.train.pipeline_stage",
    "actor_rollout_ref.actor.megatron.context_parallel_size": "layout.train.context_parallel",
    "actor_rollout_ref.actor.megatron.param_offload": "engine.param_offload",
    "actor_rollout_ref.actor.megatron.optimizer_offload": "layout.train.opt_offload",
    "actor_rollout_ref.actor.megatron.seed": "seed",
    "actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu": "engine.forward_micro_batch_size",
    "actor_rollout_ref.ref.ulysses_sequence_parallel_size": "layout.train.context_parallel",
    "actor_rollout_ref.ref.fsdp_config.param_offload": "engine.param_offload",
    "actor_rollout_ref.ref.fsdp_config.seed": "seed",
    "actor_rollout_ref.ref.megatron.tensor_model_parallel_size": "layout.train.model_parallel",
    "actor_rollout_ref.ref.megatron.pipeline_model_parallel_size": "layout.train.pipeline_stage",
    "actor_rollout_ref.ref.megatron.context_parallel_size": "layout.train.context_parallel",
    "actor_rollout_ref.ref.megatron.param_offload": "engine.param_offload",
    "actor_rollout_ref.ref.megatron.seed": "seed",
    "actor_rollout_ref.rollout.name": "engine.rollout",
    "actor_rollout_ref.rollout.n": "rollout.num_generations",
    "actor_rollout_ref.rollout.seed": "seed",
    "actor_rollout_ref.rollout.temperature": "rollout.temperature",
    "actor_rollout_ref.rollout.top_p": "rollout.top_p",
    "actor_rollout_ref.rollout.top_k": "rollout.top_k",
    "actor_rollout_ref.rollout.tensor_model_parallel_size": "layout.generate.model_parallel",
    "actor_rollout_ref.rollout.gpu_memory_utilization": "engine.gpu_memory_utilization",
    "actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu": "engine.forward_micro_batch_size",
    "algorithm.adv_estimator": "train.advantages",
    "algorithm.norm_adv_by_std_in_grpo": "train.scale_advantages",
    "reward.reward_manager.source": FROM_REWARD,
    "reward.reward_manager.name": FROM_REWARD,
    "reward.reward_manager.module.path": FROM_REWARD,
    "trainer.device": "engine.device",
    "trainer.nnodes": FROM_NODES,
    "trainer.n_gpus_per_node": FROM_NODES,
    "trainer.total_training_steps": "train.steps",
    "trainer.total_epochs": "train.steps",
    "trainer.save_freq": "train.checkpoint_every",
    "trainer.max_actor_ckpt_to_keep": "=grpoflow removes all but train.keep_checkpoints of them",
    "trainer.default_local_dir": PATH,
    "trainer.default_hdfs_dir": PROOF,
    "trainer.resume_mode": RESUMING,
    "trainer.resume_from_path": RESUMING,
    "trainer.del_local_ckpt_after_load": RESUMING,
    "trainer.use_v1": "=verl 0.9.1 calls its earlier trainer deprecated, and grpoflow was not read with it",
    "trainer.rollout_data_dir": "train.logged_completions",
    "trainer.logger": METRICS_FILE,
    "trainer.project_name": METRICS_FILE,
    "trainer.experiment_name": METRICS_FILE,
}
"""Keys of verl that upstream must not set -> grpoflow's key, or "=" and the reason."""


def text(job: Job, paths: Paths) -> str:
    """Return the configuration as YAML, with the keys of engine.upstream."""
    defaults = ["ppo_trainer", {"override model_engine": MODEL_ENGINES[job.engine.strategy]}, "_self_"]
    return dump({"defaults": defaults, **configuration(job, paths)}, job.engine.upstream)


def configuration(job: Job, paths: Paths) -> Values:
    """Return the values of the configuration, without `upstream`."""
    train = job.train
    values: Values = {
        "data": {
            "train_files": str(paths.data),
            "val_files": str(paths.held_out or paths.data),  # required, but not used if test_freq is -1
            "val_max_samples": -1 if train.validate_every else 1,
            "train_batch_size": train.prompts_per_step,
            "max_prompt_length": job.prompt_length,
            "max_response_length": job.rollout.max_tokens,
            "filter_overlong_prompts": False,  # tokenize left them out
            "truncation": "error",
            "shuffle": True,
            "seed": job.seed,
        },
        "actor_rollout_ref": {
            "model": _model(job, paths),
            "actor": _actor(job),
            "ref": _reference(job),
            "rollout": _rollout(job),
        },
        "algorithm": {
            "adv_estimator": job.engine.adv_estimator or ESTIMATORS[train.advantages],
            "norm_adv_by_std_in_grpo": train.scale_advantages,
            "use_kl_in_reward": False,
            **inference.algorithm(job),
        },
        "reward": {
            "reward_manager": {
                "source": "importlib",
                "name": "Rewards",
                "module": {"path": str(paths.configs / REWARDS)},
            }
        },
        "trainer": _trainer(job, paths),
        "ray_kwargs": {"ray_init": {"runtime_env": {"env_vars": _workers_variables(job, paths)}}},
    }
    values = merged(values, {"actor_rollout_ref": inference.determinism(job)})
    values = merged(values, separate.configuration(job))
    values = merged(values, _on_cpu(job)) if job.on_cpu else values
    turns = agent.configuration(job, paths)  # last: it replaces the plugin's agent loops
    return merged(values, {"actor_rollout_ref": {"rollout": turns}}) if turns else values


def _model(job: Job, paths: Paths) -> Values:
    values: Values = {
        "path": str(paths.model),
        "use_remove_padding": True,
        "enable_gradient_checkpointing": job.layout.train.recompute,
    }
    if job.train.lora_rank:
        values["lora_rank"] = job.train.lora_rank
    return values


def _actor(job: Job) -> Values:
    """Return the section of the policy: batches, loss, checkpoints, optimizer and sharding."""
    train, engine = job.train, job.engine
    values: Values = {
        "strategy": engine.strategy,
        "ppo_mini_batch_size": job.mini_batch_size,
        "ppo_micro_batch_size_per_gpu": engine.micro_batch_size,
        "ppo_epochs": train.num_iterations,
        "data_loader_seed": job.seed,
        "clip_ratio_low": train.epsilon_low,
        "clip_ratio_high": train.epsilon_high,
        "clip_ratio_c": NO_LIMIT if train.clip_ratio_c is None else train.clip_ratio_c,  # verl's default is 3
        "tau_pos": train.sapo_temperature_pos,
        "tau_neg": train.sapo_temperature_neg,
        "policy_loss": {"loss_mode": loss_mode(job)},
        "loss_agg_mode": AGGREGATION[train.loss_type],
        "loss_scale_factor": job.rollout.max_tokens if train.loss_type == "dr_grpo" else None,
        "use_kl_loss": train.beta > 0,
        "kl_loss_coef": train.beta,
        "kl_loss_type": KL_LOSS_TYPES[train.kl_estimator],
        "entropy_coeff": train.entropy_coeff,
        "use_torch_compile": False,
        "checkpoint": {"save_contents": ["model", "optimizer", "extra"]},
        "optim": _optimizer(job),
    }
    if engine.strategy == "megatron":
        offload = {
            "param_offload": engine.param_offload,
            "optimizer_offload": job.layout.train.opt_offload,
        }
        return {**values, "megatron": {**_megatron_degrees(job), **offload, "seed": job.seed}}
    return {
        **values,
        "ulysses_sequence_parallel_size": job.layout.train.context_parallel,
        "fsdp_config": {
            "param_offload": engine.param_offload,
            "optimizer_offload": job.layout.train.opt_offload,
            "seed": job.seed,
            "use_torch_compile": False,
        },
    }


def loss_mode(job: Job) -> str:
    """Return verl's name of the loss of a token."""
    train = job.train
    if job.engine.loss_mode is not None:
        return job.engine.loss_mode
    if train.loss_type in ("cispo", "sapo"):
        return train.loss_type
    return "gspo" if train.importance_sampling_level == "sequence" else "vanilla"


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
        schedule = {"lr_decay_style": train.schedule, "min_lr": train.learning_rate * train.final_share}
        return {**values, **schedule, "override_optimizer_config": {"adam_eps": train.adam_epsilon}}
    schedule = {"lr_scheduler_type": train.schedule, "min_lr_ratio": train.final_share}
    return {**values, **schedule, "override_optimizer_config": {"eps": train.adam_epsilon}}


def _reference(job: Job) -> Values:
    engine = job.engine
    values: Values = {
        "log_prob_micro_batch_size_per_gpu": job.forward_micro_batch_size,
        "use_torch_compile": False,
    }
    if engine.strategy == "megatron":
        degrees = _megatron_degrees(job)
        return {**values, "megatron": {**degrees, "param_offload": engine.param_offload, "seed": job.seed}}
    return {
        **values,
        "ulysses_sequence_parallel_size": job.layout.train.context_parallel,
        "fsdp_config": {
            "param_offload": engine.param_offload,
            "seed": job.seed,
            "use_torch_compile": False,
        },
    }


def _megatron_degrees(job: Job) -> Values:
    train = job.layout.train
    return {
        "tensor_model_parallel_size": train.model_parallel,
        "pipeline_model_parallel_size": train.pipeline_stage,
        "context_parallel_size": train.context_parallel,
    }


def _rollout(job: Job) -> Values:
    rollout, engine = job.rollout, job.engine
    return {
        "name": job.rollout_program,
        "n": rollout.num_generations,
        "seed": job.seed,
        "temperature": rollout.temperature,
        "top_p": 1.0 if rollout.top_p is None else rollout.top_p,
        "top_k": -1 if rollout.top_k is None else rollout.top_k,  # -1: all tokens
        "tensor_model_parallel_size": job.layout.generate.model_parallel,
        "gpu_memory_utilization": engine.gpu_memory_utilization,
        "log_prob_micro_batch_size_per_gpu": job.forward_micro_batch_size,
        **inference.weight_transfer(job),
        **inference.validation(job),
    }


def _trainer(job: Job, paths: Paths) -> Values:
    train, engine = job.train, job.engine
    return {
        "device": engine.device,
        "nnodes": job.nodes_of(job.train_cards),
        "n_gpus_per_node": min(job.train_cards, engine.cards_per_node),
        "total_training_steps": train.steps,
        "total_epochs": train.steps,  # at least one step per epoch: total_training_steps decides
        "save_freq": train.checkpoint_every or train.steps,
        "max_actor_ckpt_to_keep": None,  # verl forgets earlier checkpoints when it resumes; train.py prunes
        "default_local_dir": str(paths.checkpoints),
        "resume_mode": "auto",
        "test_freq": train.validate_every or -1,  # and after the last step
        "val_before_train": False,
        "rollout_data_dir": str(paths.completions) if train.logged_completions else None,
        "logger": ["console", "file"],
        # verl's file of metrics is PROJECT_NAME/EXPERIMENT_NAME.jsonl: one for each attempt
        "project_name": f"${{oc.env:GRPOFLOW_LOG_DIR,{paths.root}}}",
        "experiment_name": METRICS,
    }


def _on_cpu(job: Job) -> Values:
    """Return what a CPU needs besides; `upstream` may replace it."""
    model: Values = {"use_remove_padding": False, "override_config": {"attn_implementation": "sdpa"}}
    if job.train.lora_rank and job.rollout_program == "transformers":
        model["lora"] = {"merge": True}  # the plugin's rollout reads complete weights
    values: Values = {
        "data": {"dataloader_num_workers": 0},
        "actor_rollout_ref": {
            "model": model,
            "actor": {"fsdp_config": _float32()},
            "ref": {"fsdp_config": _float32()},
            "rollout": inference.cpu_rollout(job),
        },
        "reward": {"num_workers": 1},
        "transfer_queue": {"backend": {"SimpleStorage": {"num_data_storage_units": 1}}},
    }
    # verl does not filter groups with a custom sampler, and this one is for mode=sync
    if not job.train.resample_rounds and not job.is_async:
        sampler = {"path": "pkg://grpoflow_verl_cpu.ordered", "name": "OrderedReplayBuffer"}
        values["trainer"] = {"v1": {"sampler": {"custom_sampler": sampler}}}
    return values


def _float32() -> Values:
    return {"mixed_precision": {"param_dtype": "fp32", "reduce_dtype": "fp32", "buffer_dtype": "fp32"}}


def variables(job: Job, paths: Paths) -> dict[str, str]:
    """Return the environment variables of the driver and of all workers."""
    result = {
        "HYDRA_FULL_ERROR": "1",
        "RAY_DEDUP_LOGS": "0",
        "RAY_USAGE_STATS_ENABLED": "0",
        "HF_HUB_OFFLINE": "1",
    }
    if job.on_cpu:
        result |= {
            "VERL_USE_EXTERNAL_MODULES": "grpoflow_verl_cpu",
            "VERL_PLATFORM": "grpoflow_cpu",
            "RAY_AUTH_MODE": "disabled",  # Ray would write a token into the home directory
            "OMP_NUM_THREADS": "1",  # sums depend on the number of threads
            "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
            "RAY_worker_niceness": "0",  # Ray's default of 15 starves its workers on a busy machine
            **inference.cpu_variables(job),
        }
    return {**result, "HF_DATASETS_CACHE": str(paths.root / "cache")}  # by default in the home directory


def _workers_variables(job: Job, paths: Paths) -> dict[str, str]:
    """Return the variables that verl sets for workers: those of an existing cluster lack the driver's."""
    return {} if job.engine.ray_address is None else {**variables(job, paths), **job.engine.env}


def ray_options(job: Job) -> list[str]:
    """Return options of `ray start`; a CPU's worker gets logical CPUs that the machine may not have."""
    if not job.on_cpu:
        return []
    cpus = f"--num-cpus={DRIVER_CPUS + CPUS_PER_WORKER * job.cards}"
    # a dashboard is ten processes, which would delay the start of everything else
    return [cpus] if job.engine.ray_dashboard_port else [cpus, "--include-dashboard=false"]
