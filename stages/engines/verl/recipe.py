"""The configuration of a verl run: fields/recipe.yaml and the values that are computed for it.

Sources (verl 0.9.1, paths in verl/): trainer/config, workers/config, trainer/ppo/core_algos.py,
trainer/ppo/v1/trainer_base.py, workers/engine/fsdp/transformer_impl.py.
"""

from typing import Any

import yaml

from stages.engines.outside import dump
from stages.engines.template import ABSENT, fill
from stages.engines.upstream import merged
from stages.engines.verl.job import CPUS_PER_WORKER, DRIVER_CPUS, METRICS, PLUGIN, REWARDS, Job, Paths
from stages.engines.verl.upstream import FIELDS, RECORDS, TEMPLATE, fields

Values = dict[str, Any]
AGGREGATION = {
    "grpo": "seq-mean-token-mean",
    "dapo": "token-mean",
    "dr_grpo": "seq-mean-token-sum-norm",
}
"""train.loss_type -> actor.loss_agg_mode."""
NO_LIMIT = 1e9
"""Value of clip_grad that has no effect."""
VARIABLES = yaml.safe_load((FIELDS / "variables.yaml").read_text(encoding="utf-8"))


def variables(job: Job, paths: Paths) -> dict[str, str]:
    """Return the environment variables of all processes."""
    cache = {"HF_DATASETS_CACHE": str(paths.root / "cache")}  # by default in the home directory
    return {**VARIABLES["all"], **(VARIABLES["cpu"] if job.on_cpu else {}), **cache}


def ray_options(job: Job) -> list[str]:
    """Return options of `ray start`; a CPU's worker gets logical CPUs that the machine may not have."""
    return [f"--num-cpus={DRIVER_CPUS + CPUS_PER_WORKER * job.cards}"] if job.on_cpu else []


def recipe(job: Job, paths: Paths) -> Values:
    """Return the values of the rendered file, without `upstream`."""
    return fill(TEMPLATE, job, paths, _derived(job, paths), fields(job).knows)


def text(job: Job, paths: Paths) -> str:
    """Return the rendered file."""
    defaults = ["ppo_trainer", {"override model_engine": RECORDS[job.engine.strategy]}, "_self_"]
    values = merged(recipe(job, paths), _cpu_values(job, paths) if job.on_cpu else {})
    return dump({"defaults": defaults, **values}, job.engine.upstream)


def _derived(job: Job, paths: Paths) -> Values:
    train, rollout, engine = job.train, job.rollout, job.engine
    epsilon = "adam_eps" if engine.strategy == "megatron" else "eps"
    # workers of an existing Ray cluster do not have the driver's variables
    workers = {} if engine.ray_address is None else {**variables(job, paths), **engine.env}
    return {
        "lora_rank": train.lora_rank or ABSENT,
        "loss_mode": "gspo" if train.importance_sampling_level == "sequence" else "vanilla",
        "loss_agg_mode": AGGREGATION[train.loss_type],
        "loss_scale_factor": rollout.max_tokens if train.loss_type == "dr_grpo" else None,
        "use_kl_loss": train.beta > 0,
        "warmup_steps": train.warmup_steps // train.num_iterations,  # the rate changes once per step
        "betas": [train.adam_beta1, train.adam_beta2],
        "clip_grad": NO_LIMIT if train.max_grad_norm is None else train.max_grad_norm,
        "min_lr": train.learning_rate * train.final_share,
        "optimizer": {epsilon: train.adam_epsilon},
        "forward_batch": job.forward_micro_batch_size,
        "rewards": paths.configs / REWARDS,
        "cards_per_node": min(job.cards, engine.cards_per_node),
        "save_freq": train.checkpoint_every or train.steps,
        "completions": paths.completions if train.logged_completions else None,
        "metrics_directory": f"${{oc.env:GRPOFLOW_LOG_DIR,{paths.root}}}",
        "metrics_name": METRICS,
        "runtime_env": {"env_vars": workers},
    }


def _cpu_values(job: Job, paths: Paths) -> Values:
    """Return what a CPU needs besides `recipe`; `upstream` may replace it."""
    filters = job.engine.upstream.get("algorithm", {}).get("filter_groups", {}).get("enable")
    sampler = {"path": "pkg://grpoflow_verl_cpu.ordered", "name": "OrderedReplayBuffer"}
    derived = {
        "merge": True if job.train.lora_rank else ABSENT,
        "agent_loops": PLUGIN / "grpoflow_verl_cpu" / "agent_loops.yaml",
        "sampler": ABSENT if filters else sampler,  # verl does not filter groups with a custom sampler
    }
    return fill(FIELDS / "cpu.yaml", job, paths, derived)
