"""The training YAML and runtime_env.yaml as plain values, with keys that the contract's version accepts.

Source: Ascend/MindSpeed-RL at 667a547 and 05a90d7, configs/grpo_qwen25_*.yaml, configs/model/,
configs/envs/runtime_env.yaml and mindspeed_rl/config_cls.
"""

from pathlib import Path
from typing import Any

import yaml

from stages.engines.mindspeed_rl.job import Job, Paths, layer_list
from stages.engines.template import ABSENT, fill
from stages.engines.upstream import Upstream, load
from stages.models.families import family_of

Values = dict[str, Any]
_CPUS = 8
"""num_cpus_for_placement_group's default (rl_config.py)."""
FIELDS = Path(__file__).with_name("fields")
TEMPLATE = FIELDS / "train.yaml"
SECTIONS = (
    "megatron_training", "actor_config", "rl_config", "generate_config", "profiler_config.integrated",
    "msprobe_config",
)  # fmt: skip
SEPARATE = ("ref_config", "reward_config")
"""Sections that MindSpeed-RL refuses with integrated workers."""


def fields(job: Job) -> Upstream:
    """Return the fields of the training YAML, the keys of engine.upstream: SECTION.KEY."""
    sections = (*SECTIONS, *(() if job.engine.use_integrated_worker else SEPARATE))
    record = FIELDS / f"{job.engine.contract}.yaml"
    records = (("", record, section) for section in sections)
    return load(FIELDS / "keys.yaml", *records, templates=(("", TEMPLATE),))


def train_config(job: Job, paths: Paths, resume: bool) -> Values:
    """Return all sections of the training YAML."""
    megatron = family_of(job.model).megatron
    assert megatron is not None  # stages.models.families.RULES
    sections = fill(TEMPLATE, job, paths, _derived(job, paths, resume))
    if job.engine.use_integrated_worker:
        sections = {name: values for name, values in sections.items() if name not in SEPARATE}
    return {"model": {job.model.name: megatron(job.model)}, **sections}


def runtime_env(job: Job) -> Values:
    """Return the variables of every Ray worker: the version's, overridden by the user's."""
    file = FIELDS / f"runtime_env_{job.engine.contract}.yaml"
    return {"env_vars": {**yaml.safe_load(file.read_text(encoding="utf-8")), **job.engine.runtime_env}}


def _derived(job: Job, paths: Paths, resume: bool) -> Values:
    """Return the values of the template that are computed."""
    engine, layout, train = job.engine, job.layout.train, job.train
    recompute = "full" if layout.recompute else "selective" if layout.select_recompute else ABSENT
    return {
        "reward_weights": engine.reward_load or paths.weights,
        "original_weights": paths.weights if resume and engine.use_integrated_worker else ABSENT,
        "load": paths.checkpoints if resume else paths.weights,
        "is_new": not resume,
        # Megatron refuses sequence parallelism without tensor parallelism
        "sequence_parallel": layout.use_seq_parallel and layout.model_parallel > 1,
        "context_parallel_size": layout.context_parallel if layout.context_parallel > 1 else ABSENT,
        "num_layer_list": layer_list(job.model, layout) or ABSENT,
        "recompute_granularity": recompute,
        "recompute_method": "uniform" if layout.recompute else ABSENT,
        "recompute_num_layers": 1 if layout.recompute else ABSENT,
        "swap_optimizer": layout.opt_offload or ABSENT,
        "without_padding": engine.use_remove_padding or ABSENT,
        "seed": job.seed + 1,  # Megatron refuses 0
        "min_lr": 0.0 if train.schedule == "constant" else train.learning_rate * train.final_share,
        "clip_grad": train.max_grad_norm or 0.0,
        # upstream keeps prompts that are shorter than this (indexed_dataset.py:545)
        "max_prompt_length": job.tokenize.max_prompt_length + 1,
        "cpus_per_npu": engine.cpus_per_npu if engine.cpus_per_npu != _CPUS else ABSENT,
        "reference_npus": job.reference_npus or ABSENT,
        "reward_npus": job.reward_npus or ABSENT,
        "log_max_throughput": False if engine.contract == "05a90d7" else ABSENT,
        "enforce_eager": True if engine.contract == "667a547" else ABSENT,
    }
