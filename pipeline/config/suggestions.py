"""Remedies for mistyped keys and choices, and for the names that other frameworks use."""

import difflib
import typing
from collections.abc import Iterable, Sequence
from pathlib import Path

from stages.base.identity import by_name, field_types
from stages.rewards.config import BUILTIN
from stages.sections import EngineConfig

SYNONYMS = {
    "lr": "learning_rate",
    "wd": "weight_decay",
    "warmup": "warmup_steps",
    "grad_clip": "max_grad_norm",
    "clip_grad": "max_grad_norm",
    "kl_coef": "beta",
    "kl_loss_coef": "beta",
    "clip_ratio": "epsilon_low",
    "epsilon": "epsilon_low",
    "n": "num_generations",
    "group_size": "num_generations",
    "num_return_sequences": "num_generations",
    "max_new_tokens": "max_tokens",
    "max_completion_length": "max_tokens",
    "max_response_length": "max_tokens",
    "batch_size": "prompts_per_step",
    "train_batch_size": "prompts_per_step",
    "max_steps": "steps",
    "epochs": "steps",
    "num_train_epochs": "steps",
    "ppo_epochs": "num_iterations",
    "save_steps": "checkpoint_every",
    "save_freq": "checkpoint_every",
    "report_to": "loggers",
    "logger": "loggers",
    "gpus": "cards",
    "npus": "cards",
    "n_gpus_per_node": "cards_per_node",
    "tp": "model_parallel",
    "dp": "data_parallel",
    "pp": "pipeline_stage",
    "tensor_model_parallel_size": "model_parallel",
    "pipeline_model_parallel_size": "pipeline_stage",
}
"""Last part of a key in Hugging Face, TRL, verl and Megatron -> ours."""
_SECTIONS = ("train", "rollout", "layout.train")
"""Sections that are meant if several have the key, most likely first."""


def for_key(key: str, known: Iterable[str]) -> str:
    """Return the remedy for an unknown key."""
    keys = list(known)
    if key.startswith(("engine.upstream.", "mindformers.upstream.")):
        return f"a key of the engine's program needs a plus sign: +{key}=VALUE"
    section, _, name = key.rpartition(".")
    if section == "engine" and (owners := engines_with(name)):
        return f"choose an engine that has it: {', '.join(f'engine={owner}' for owner in owners)}"
    name = SYNONYMS.get(name, name)
    same_name = [path for path in keys if path.rpartition(".")[2] == name]
    for prefix in (section, *_SECTIONS):
        for path in same_name:
            if path.rpartition(".")[0] == prefix:
                return f"did you mean {path}?"
    near = same_name[:1] or difflib.get_close_matches(key, keys, n=1, cutoff=0.5)
    return f"did you mean {near[0]}?" if near else "see `grpoflow config`"


def engines_with(name: str) -> tuple[str, ...]:
    """Return the engines whose settings have a key."""
    settings = by_name(typing.get_args(EngineConfig))
    return tuple(engine for engine, section in settings.items() if name in field_types(section))


def for_choice(group: str, value: str, choices: Sequence[str]) -> str:
    """Return the remedy for a choice that a group does not have."""
    if group == "layout":
        return "a layout's name has the form dpN_mpN_ppN, for example dp1_mp4_pp2"
    if group == "remote" and value.startswith(("/", "~", ".")):
        return f"a directory is remote=file://{Path(value).expanduser().absolute()}"
    if group == "reward" and value in BUILTIN:
        return f"a reward function is reward.functions=[{value}]"
    if group == "launcher" and value in ("kuberay", "kubernetes", "k8s"):
        return "stages run as jobs of a KubeRay cluster: launcher=ray launcher.ray_address=http://HOST:8265"
    if group in ("model", "dataset") and "/" in value:
        directory = f"a directory is {group}.path=DIR"
        hub = f"; a repository of the hub is {group}=NAME {group}.hub.id={value}"
        return f"{directory}{hub if group == 'model' else ''}; known: {', '.join(choices)}"
    return nearest(value.lower().replace(".", "_").replace("-", "_"), choices, f"{group}=")


def nearest(value: str, choices: Sequence[str], prefix: str = "") -> str:
    """Return all choices as a remedy, and the nearest one if there is any."""
    near = difflib.get_close_matches(value, choices, n=1)
    known = f"known: {', '.join(choices)}"
    return f"did you mean {prefix}{near[0]}? {known}" if near else known
