"""What grpoflow renders for an AReaL run: its configuration, and task.json for the driver.

The configuration has the names and the order of AReaL's GRPOConfig. Sources (AReaL 1.0.4, paths in areal/):
api/cli_args.py, trainer/rl_trainer.py, trainer/ppo/actor.py, utils/functional/functional.py,
engine/fsdp_engine.py, infra/scheduler/local.py.
"""

import dataclasses
import json
from typing import Any

from stages.engines import scoring
from stages.engines.areal.job import EXPERIMENT, METRICS, TRIAL, Job, Paths
from stages.engines.outside import dump
from stages.engines.upstream_keys import Rendered
from stages.grpo.config import TrainConfig

Values = dict[str, Any]
NO_LOWER_LIMIT = 1e-9
"""Value of rejection_sampling.lower that has no effect. Without one AReaL sets 0, which its workers refuse
when they read the configuration (RejectionSamplingConfig.__post_init__): they go on with a dict, and fail."""
NO_LIMIT = 1e9
"""Value of gradient_clipping and reward_clip that has no effect."""
WORKER = "python3 -m grpoflow_areal.worker"
"""AReaL's worker (programs/grpoflow_areal); its scheduler replaces python3 by the driver's interpreter."""

PATH = "=it is a path of this run"
RESUMING = "=resuming reads it"
FROM_NODES = "=launcher.cards_per_node and the number of cards decide it"
OWN_WORKER = "=AReaL's scheduler starts grpoflow's worker"
OWN_ROWS = "=the driver gives AReaL the rows of each step"
RENDERED: Rendered = {
    "experiment_name": PATH,
    "trial_name": PATH,
    "seed": "seed",
    "total_train_epochs": "train.steps",
    "total_train_steps": "train.steps",
    "tokenizer_path": PATH,
    "cluster.n_nodes": FROM_NODES,
    "cluster.n_gpus_per_node": FROM_NODES,
    "cluster.fileroot": PATH,
    "cluster.name_resolve": PATH,
    "scheduler.type": FROM_NODES,
    "rollout.backend": "engine.rollout_cards",
    "rollout.fileroot": PATH,
    "rollout.tokenizer_path": PATH,
    "rollout.max_head_offpolicyness": "engine.staleness",
    "rollout.max_concurrent_rollouts": "engine.staleness",
    "rollout.consumer_batch_size": "train.prompts_per_step",
    "rollout.setup_timeout": "engine.start_timeout_s",
    "rollout.request_timeout": "engine.request_timeout_s",
    "rollout.scheduling_spec": OWN_WORKER,
    "rollout._version": "=resuming needs version 1 of the controller",
    "gconfig.n_samples": "rollout.num_generations",
    "gconfig.max_new_tokens": "rollout.max_tokens",
    "gconfig.max_tokens": "rollout.max_tokens",
    "gconfig.temperature": "rollout.temperature",
    "gconfig.top_p": "rollout.top_p",
    "gconfig.top_k": "rollout.top_k",
    "gconfig.stop_token_ids": "=section model has the ids that end a completion",
    "actor.path": PATH,
    "actor.backend": "layout.train.data_parallel",
    "actor.temperature": "rollout.temperature",
    "actor.mb_spec": "engine.micro_batch_tokens",
    "actor.gradient_checkpointing": "layout.train.recompute",
    "actor.optimizer.lr": "train.learning_rate",
    "actor.optimizer.weight_decay": "train.weight_decay",
    "actor.optimizer.beta1": "train.adam_beta1",
    "actor.optimizer.beta2": "train.adam_beta2",
    "actor.optimizer.eps": "train.adam_epsilon",
    "actor.optimizer.min_lr_ratio": "train.final_share",
    "actor.optimizer.lr_scheduler_type": "train.schedule",
    "actor.optimizer.warmup_steps_proportion": "train.warmup_steps",
    "actor.optimizer.gradient_clipping": "train.max_grad_norm",
    "actor.ppo_n_minibatches": "engine.mini_batch_size",
    "actor.eps_clip": "train.epsilon_low",
    "actor.eps_clip_higher": "train.epsilon_high",
    "actor.reward_norm": "train.scale_advantages",
    "actor.kl_ctl": "engine.kl_in_reward",
    "actor.recompute_logprob": "engine.mode",
    "actor.use_decoupled_loss": "engine.mode",
    "actor.rejection_sampling": "rollout.correction",
    "actor.importance_sampling_level": "train.importance_sampling_level",
    "actor.max_new_tokens": "rollout.max_tokens",
    "actor.scheduling_spec": OWN_WORKER,
    "actor._version": "=resuming needs version 1 of the controller",
    "ref.path": PATH,
    "ref.experiment_name": PATH,
    "ref.trial_name": PATH,
    "ref.backend": "layout.train.data_parallel",
    "ref.temperature": "rollout.temperature",
    "ref.mb_spec": "engine.micro_batch_tokens",
    "ref.optimizer": "=the reference is not trained",
    "ref.scheduling_strategy": "=the reference is on the cards of actor",
    "ref.scheduling_spec": OWN_WORKER,
    "vllm.model": PATH,
    "vllm.seed": "seed",
    "vllm.max_model_len": "rollout.max_tokens",
    "vllm.gpu_memory_utilization": "engine.gpu_memory_utilization",
    "train_dataset.path": OWN_ROWS,
    "train_dataset.type": OWN_ROWS,
    "train_dataset.shuffle": OWN_ROWS,
    "train_dataset.batch_size": "train.prompts_per_step",
    "saver": "=the driver saves the model of the last step",
    "recover": RESUMING,
    "stats_logger.fileroot": PATH,
}
"""Keys of AReaL that upstream must not set -> grpoflow's key, or "=" and the reason."""


def text(job: Job, paths: Paths) -> str:
    """Return the configuration as YAML, with the keys of engine.upstream."""
    return dump(configuration(job, paths), job.engine.upstream)


def configuration(job: Job, paths: Paths) -> Values:
    """Return the values of the configuration, without `upstream`."""
    train, names = job.train, {"experiment_name": EXPERIMENT, "trial_name": TRIAL}
    located = {**names, "fileroot": str(paths.areal)}
    never = {**located, "freq_epochs": None, "freq_steps": None, "freq_secs": None}
    values: Values = {
        **names,
        "seed": job.seed,
        "enable_offload": False,
        "total_train_epochs": 1,  # the driver's epoch has the rows of all steps
        "total_train_steps": train.steps,
        "tokenizer_path": str(paths.model),
        "cluster": {
            "n_nodes": job.nodes,
            "n_gpus_per_node": 0 if job.on_cpu else min(job.cards, job.engine.cards_per_node),
            "fileroot": str(paths.areal),
            "name_resolve": {"type": "nfs", "nfs_record_root": str(paths.areal / "names")},
        },
        "scheduler": {"type": "ray" if job.on_ray else "local"},
        "rollout": _rollout(job, paths, located),
        "gconfig": _sampling(job),
        "actor": _actor(job, paths, names),
        "vllm": _vllm(job, paths),
        "train_dataset": {
            "path": str(paths.data),
            "type": "rl",
            "batch_size": train.prompts_per_step,
            "shuffle": False,  # the driver's rows are in the order of the steps
            "pin_memory": False,
            "num_workers": 0,
        },
        "saver": never,
        "recover": {**never, "mode": "on", "freq_steps": job.save_every},
        "evaluator": never,
        "stats_logger": {**located, "wandb": {"mode": "disabled"}},
    }
    if job.engine.kl_in_reward:
        values["ref"] = _reference(job, paths, names)
    return values


def _workers(job: Job) -> list[Values]:
    """Return what each worker is: a process that AReaL's scheduler starts."""
    return [
        {
            "task_type": "worker",
            "port_count": 2,
            "gpu": 0 if job.on_cpu else 1,
            "cpu": 1 if job.on_cpu else 8,
            "mem": 4 if job.on_cpu else 32,
            "cmd": WORKER,
            "env_vars": {},
        }
    ]


def _rollout(job: Job, paths: Paths, located: Values) -> Values:
    prompts, limit_s = job.train.prompts_per_step, job.engine.request_timeout_s
    return {
        **located,
        "backend": f"vllm:d{job.servers}p1t{1 if job.on_cpu else job.layout.generate.model_parallel}",
        "max_concurrent_rollouts": prompts * (job.staleness + 1),
        "consumer_batch_size": prompts,
        "max_head_offpolicyness": job.staleness,
        "tokenizer_path": str(paths.model),
        "dump_to_file": False,  # the workflow writes completions
        "setup_timeout": job.engine.start_timeout_s,
        **({} if limit_s is None else {"request_timeout": limit_s}),
        "scheduling_spec": _workers(job),
    }


def _sampling(job: Job) -> Values:
    rollout = job.rollout
    values: Values = {
        "n_samples": rollout.num_generations,
        "max_new_tokens": rollout.max_tokens,
        "max_tokens": job.sample_length,
        "temperature": rollout.temperature,
    }
    values |= {} if rollout.top_p is None else {"top_p": rollout.top_p}
    return values | ({} if rollout.top_k is None else {"top_k": rollout.top_k})


def _model(job: Job, paths: Paths, names: Values) -> Values:
    """Return the settings of a model on the training cards."""
    return {
        **names,
        "backend": f"fsdp:d{job.layout.train.data_parallel}p1t1",
        "path": str(paths.model),
        "attn_impl": "sdpa" if job.on_cpu else "flash_attention_2",
        "temperature": job.rollout.temperature,
        "mb_spec": _micro_batches(job),
        "disable_dropout": True,
        "dtype": "float32" if job.on_cpu else "bfloat16",
    }


def _micro_batches(job: Job) -> Values:
    """Return how sequences are divided into passes.

    With attn_impl=sdpa or eager, tokens of a packed pass attend to other sequences (engine/fsdp_engine.py,
    prepare_mb_list, sets no attention mask), so that a pass holds one sequence there.
    """
    if job.on_cpu:
        return {"n_mbs": -(-job.samples // job.train_cards), "max_tokens_per_mb": job.sample_length}
    return {"max_tokens_per_mb": job.engine.micro_batch_tokens}


def _actor(job: Job, paths: Paths, names: Values) -> Values:
    """Return the settings of the policy: batches, optimizer, loss and rewards."""
    train, engine = job.train, job.engine
    return {
        **_model(job, paths, names),
        "gradient_checkpointing": job.layout.train.recompute,
        "optimizer": _optimizer(train),
        "weight_update_mode": "disk" if job.on_cpu else "xccl",
        "ppo_n_minibatches": train.prompts_per_step // job.mini_batch_size,
        "eps_clip": train.epsilon_low,
        "eps_clip_higher": train.epsilon_high,
        "reward_norm": {
            "mean_level": "group",
            "std_level": "group" if train.scale_advantages else None,
            "group_size": job.rollout.num_generations,
        },
        "reward_clip": NO_LIMIT,  # AReaL's default cuts rewards at 20
        "adv_norm": None,
        "kl_ctl": engine.kl_in_reward,
        "kl_estimator": "k1",
        # the ratio that is clipped is to the trainer's own numbers; the servers' enter _correction alone
        "recompute_logprob": True,
        "use_decoupled_loss": job.is_async or job.rollout.correction != "none",
        "rejection_sampling": _correction(job),
        "importance_sampling_level": train.importance_sampling_level,
        "max_new_tokens": job.rollout.max_tokens,
        "scheduling_spec": _workers(job),
    }


def _correction(job: Job) -> Values | None:
    """Return how tokens are weighted by the ratio of the newest policy to the one that generated them.

    Without rejection_sampling AReaL applies no weight at all, whatever use_decoupled_loss says, and without
    use_decoupled_loss the ratio is 1, because recomputed log-probabilities replace those of the servers
    (utils/functional/functional.py, ppo_actor_loss_fn; trainer/ppo/actor.py, _compute_advantages).
    """
    rollout = job.rollout
    if rollout.correction == "none":
        return None
    values: Values = {"level": "token", "metric": "ratio", "upper": rollout.correction_max}
    if rollout.correction == "tis":
        return {**values, "action": "clamp", "lower": NO_LOWER_LIMIT}
    lower = 1 / rollout.correction_max if rollout.correction_min is None else rollout.correction_min
    return {**values, "action": "mask", "lower": lower}


def _optimizer(train: TrainConfig) -> Values:
    return {
        "type": "adam",
        "lr": train.learning_rate,
        "weight_decay": train.weight_decay,
        "beta1": train.adam_beta1,
        "beta2": train.adam_beta2,
        "eps": train.adam_epsilon,
        "min_lr_ratio": train.final_share,
        "lr_scheduler_type": train.schedule,
        "warmup_steps_proportion": train.warmup_steps / train.steps,
        "gradient_clipping": NO_LIMIT if train.max_grad_norm is None else train.max_grad_norm,
    }


def _reference(job: Job, paths: Paths, names: Values) -> Values:
    return {
        **_model(job, paths, names),
        "optimizer": None,
        "scheduling_strategy": {"type": "colocation", "target": "actor"},
        "scheduling_spec": _workers(job),
    }


def _vllm(job: Job, paths: Paths) -> Values:
    return {
        "model": str(paths.model),
        "seed": job.seed,
        "dtype": "float32" if job.on_cpu else "bfloat16",
        "max_model_len": job.sample_length,
        "gpu_memory_utilization": job.engine.gpu_memory_utilization,
    }


def task(job: Job, paths: Paths) -> str:
    """Return task.json: what driver and workflow need besides AReaL's configuration."""
    directories = scoring.user_directories(job.reward)
    values = {
        "data": str(paths.data),
        "steps": job.train.steps,
        "prompts_per_step": job.train.prompts_per_step,
        "seed": job.seed,
        "staleness": job.staleness,
        "end_ids": list(job.model.eos_token_id or ()),  # null until the model is fetched
        "checkpoints": str(paths.checkpoints),
        "names": str(paths.areal / "names"),
        "final": str(paths.final),
        "metrics": METRICS,
        "root": str(paths.root),
        "start_timeout_s": job.engine.start_timeout_s,
        "completions": str(paths.completions) if job.train.logged_completions else None,
        "episodes": str(paths.episodes),
        "completions_every": job.train.completions_every,
        "logged_completions": job.train.logged_completions,
        "scoring": scoring.settings(paths.root, dataclasses.asdict(job.reward), directories),
    }
    return json.dumps(values, indent=1)


def variables(job: Job, paths: Paths) -> dict[str, str]:
    """Return the environment variables of the driver, which its workers inherit."""
    result = {
        "HF_HUB_OFFLINE": "1",
        "HF_DATASETS_CACHE": str(paths.root / "cache"),  # by default in the home directory
        "WANDB_MODE": "disabled",
        "SWANLAB_MODE": "disabled",
        "RAY_USAGE_STATS_ENABLED": "0",
        "TOKENIZERS_PARALLELISM": "false",
    }
    if job.on_cpu:
        # sums depend on the number of threads; compiled operators need a compiler
        result |= {"OMP_NUM_THREADS": "1", "TORCHDYNAMO_DISABLE": "1"}
    return result
