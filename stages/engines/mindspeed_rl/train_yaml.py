"""The training YAML and runtime_env.yaml as plain values, with keys that the contract's version accepts.

Their constants and the keys of grpoflow that their values come from are in templates/.
Source: Ascend/MindSpeed-RL at 667a547 and 05a90d7, configs/grpo_qwen25_*.yaml, configs/model/,
configs/envs/runtime_env.yaml and mindspeed_rl/config_cls.
"""

import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from stages.base.rules import value_at
from stages.engines.mindspeed_rl.job import Job, Paths, layer_list
from stages.engines.mindspeed_rl.upstream import SEPARATE
from stages.models.families import family_of

Values = dict[str, Any]
TEMPLATES = Path(__file__).with_name("templates")
_CPUS = 8
"""num_cpus_for_placement_group's default (rl_config.py)."""


def train_config(job: Job, paths: Paths, resume: bool) -> Values:
    """Return all sections of the training YAML."""
    megatron = family_of(job.model).megatron
    assert megatron is not None  # stages.models.families.RULES
    left_out = SEPARATE if job.engine.use_integrated_worker else ()
    template = {name: keys for name, keys in _read("train").items() if name not in left_out}
    shape = {job.model.name: megatron(job.model)}
    return {"model": shape, **_fill(template, job, _derived(job, paths, resume))}


def runtime_env(job: Job) -> Values:
    """Return the variables of every Ray worker: the version's, overridden by the user's."""
    return {"env_vars": {**_read(f"runtime_env_{job.engine.contract}"), **job.engine.runtime_env}}


@functools.cache
def _read(name: str) -> Values:
    values: Values = yaml.safe_load((TEMPLATES / f"{name}.yaml").read_text(encoding="utf-8"))
    return values


def _fill(template: Any, job: Job, derived: Values) -> Any:
    """Return a template with the value of each ${KEY}, without keys whose value is None."""
    if isinstance(template, Mapping):
        values = {name: _fill(value, job, derived) for name, value in template.items()}
        return {name: value for name, value in values.items() if value is not None} or None
    if isinstance(template, str) and template.startswith("${"):
        key = template.strip("${}")
        return derived[key] if key in derived else value_at(job, key)
    return template


def _derived(job: Job, paths: Paths, resume: bool) -> Values:
    """Return the values of the template that are no keys of the job; None leaves the key out."""
    engine, layout, rollout, train = job.engine, job.actor, job.rollout, job.train
    recompute = "full" if layout.recompute else "selective" if layout.select_recompute else None
    return {
        "tokenizer": str(paths.tokenizer),
        "data": str(paths.data),
        "runtime_env": str(paths.configs / "runtime_env.yaml"),
        "weights": str(paths.weights),
        "reward_weights": engine.reward_load or str(paths.weights),
        "original_weights": str(paths.weights) if resume and engine.use_integrated_worker else None,
        "checkpoints": str(paths.checkpoints),
        "load": str(paths.checkpoints if resume else paths.weights),
        "is_new": not resume,
        # Megatron refuses sequence parallelism without tensor parallelism
        "sequence_parallel": layout.use_seq_parallel and layout.model_parallel > 1,
        "context_parallel_size": layout.context_parallel if layout.context_parallel > 1 else None,
        "num_layer_list": layer_list(job.model, layout) or None,
        "recompute_granularity": recompute,
        "recompute_method": "uniform" if layout.recompute else None,
        "recompute_num_layers": 1 if layout.recompute else None,
        "swap_optimizer": layout.opt_offload or None,
        "without_padding": engine.use_remove_padding or None,
        "megatron_seed": job.seed + 1,  # Megatron refuses 0
        "min_lr": 0.0 if train.schedule == "constant" else train.learning_rate * train.final_share,
        "clip_grad": train.max_grad_norm or 0.0,
        # upstream keeps prompts that are shorter than this (indexed_dataset.py:545)
        "max_prompt_length": job.tokenize.max_prompt_length + 1,
        "cpus_per_npu": engine.cpus_per_npu if engine.cpus_per_npu != _CPUS else None,
        "reference_npus": job.reference_npus or None,
        "log_max_throughput": False if job.engine.contract == "05a90d7" else None,
        "enforce_eager": True if job.engine.contract == "667a547" else None,
        "top_p": 1.0 if rollout.top_p is None else rollout.top_p,
        "top_k": -1 if rollout.top_k is None else rollout.top_k,
        "min_p": rollout.min_p or 0.0,
    }
