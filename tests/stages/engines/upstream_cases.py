"""Engines with engine.upstream: a run of each contract, its fields, and what is rendered."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from pipeline.config.load import load
from stages.base.rules import Rules
from stages.engines.mindformers import finetune_yaml as mindformers_upstream
from stages.engines.mindformers import rules as mindformers_rules
from stages.engines.mindformers import stage as mindformers_stage
from stages.engines.mindformers.finetune_yaml import finetune
from stages.engines.mindformers.job import Job as MindformersJob
from stages.engines.mindformers.job import Paths as MindformersPaths
from stages.engines.mindrlhf import files as mindrlhf_upstream
from stages.engines.mindrlhf import rules as mindrlhf_rules
from stages.engines.mindrlhf import stage as mindrlhf_stage
from stages.engines.mindrlhf.files import all_configs
from stages.engines.mindrlhf.job import Job as MindrlhfJob
from stages.engines.mindspeed_rl import job as mindspeed_rl_job
from stages.engines.mindspeed_rl import rules as mindspeed_rl_rules
from stages.engines.mindspeed_rl import train as mindspeed_rl_stage
from stages.engines.mindspeed_rl import train_yaml as mindspeed_rl_upstream
from stages.engines.mindspeed_rl.job import Job as MindspeedRlJob
from stages.engines.mindspeed_rl.train_yaml import train_config
from stages.engines.upstream import Upstream, leaves
from stages.engines.verl import recipe as verl_recipe
from stages.engines.verl import rules as verl_rules
from stages.engines.verl import train as verl_train
from stages.engines.verl import upstream as verl_upstream
from stages.engines.verl.job import Job as VerlJob


@dataclass(frozen=True, eq=False)
class Case:
    """One engine at one contract."""

    name: str
    overrides: tuple[str, ...]
    section: str
    """Section with the engine's settings."""
    job: Callable[[Mapping[str, Any]], Any]
    sections: tuple[str, ...]
    """Sections that are rendered."""
    fields: Callable[[Any], Upstream]
    rules: Rules[Any]
    values: Callable[[Any], Mapping[str, Any]]
    """Return what a job is rendered to without `upstream`, by the path of each file below `upstream`."""
    texts: Callable[[Mapping[str, Any]], Mapping[str, str]]
    """Return the YAML text of each rendered file by the same paths, from a plain configuration."""
    table: Path
    """The handwritten table."""

    @functools.cached_property
    def config(self) -> dict[str, Any]:
        """Plain configuration."""
        return load(self.overrides).plain()

    def rendered(self, config: Mapping[str, Any]) -> dict[str, Any]:
        """Return the values in the rendered files by path."""
        files = {path: yaml.safe_load(text) for path, text in self.texts(config).items()}
        return {key: value for path, values in files.items() for key, value in leaves(values, path)}

    def without_upstream(self, config: Mapping[str, Any]) -> dict[str, Any]:
        """Return the rendered values by path, without `upstream`."""
        files = self.values(self.job(config))
        return {key: value for path, values in files.items() for key, value in leaves(values, path)}


MINDRLHF_FILES = {
    "grpo_config": "grpo_config.yaml",
    **{f"model.{role}": file for role, file in mindrlhf_upstream.FILES.items()},
}


def _mindrlhf_values(job: MindrlhfJob) -> dict[str, Any]:
    values = all_configs(job, mindrlhf_stage.paths_of(job, Path("/run"), Path("/data")), resume=False)
    return {path: values[name] for path, name in MINDRLHF_FILES.items()}


def _mindrlhf_texts(config: Mapping[str, Any]) -> dict[str, str]:
    inputs = {"tokenize": Path("/tokenized")}
    files = mindrlhf_stage.render(config, inputs, Path("/run")).files
    return {path: files[f"configs/{name}"] for path, name in MINDRLHF_FILES.items()}


def _mindrlhf(name: str, *overrides: str) -> Case:
    return Case(
        name,
        ("model.path=/models/qwen", *overrides),
        "engine",
        MindrlhfJob.from_config,
        ("model", "layout", "tokenize", "rollout", "reward", "train", "engine", "seed"),
        mindrlhf_upstream.fields,
        mindrlhf_rules.RULES,
        _mindrlhf_values,
        _mindrlhf_texts,
        mindrlhf_upstream.FIELDS / "keys.yaml",
    )


def _mindspeed_rl_values(job: MindspeedRlJob) -> dict[str, Any]:
    values = train_config(job, mindspeed_rl_job.paths_of(Path("/run")), resume=False)
    (shape,) = values.pop("model").values()  # every Megatron section takes the keys of the model's shape
    return {"": values | {"megatron_training": {**shape, **values["megatron_training"]}}}


def _mindspeed_rl_texts(config: Mapping[str, Any]) -> dict[str, str]:
    return {"": mindspeed_rl_stage.render(config, {}, Path("/run")).files["configs/train.yaml"]}


def _mindspeed_rl(name: str, *overrides: str) -> Case:
    return Case(
        name,
        ("engine=mindspeed_rl", "model.path=/models/qwen", "layout=dp2_mp2_pp2", *overrides),
        "engine",
        MindspeedRlJob.from_config,
        ("model", "layout", "tokenize", "rollout", "train", "engine", "seed"),
        mindspeed_rl_upstream.fields,
        mindspeed_rl_rules.RULES,
        _mindspeed_rl_values,
        _mindspeed_rl_texts,
        mindspeed_rl_upstream.FIELDS / "keys.yaml",
    )


def _mindformers_values(job: MindformersJob) -> dict[str, Any]:
    return {
        "train": finetune(job, MindformersPaths(Path("/run"), Path("/data"), Path("/start")), resume=False)
    }


def _mindformers_texts(config: Mapping[str, Any]) -> dict[str, str]:
    files = mindformers_stage.render(config, {"tokenize": Path("/tokenized")}, Path("/run")).files
    return {"train": files["finetune.yaml"]}


def _mindformers(name: str, *overrides: str) -> Case:
    return Case(
        name,
        ("model.path=/models/qwen", "engine.sft=mindformers", *overrides),
        "mindformers",
        MindformersJob.from_config,
        ("model", "layout", "tokenize", "mindformers", "seed"),
        mindformers_upstream.fields,
        mindformers_rules.RULES,
        _mindformers_values,
        _mindformers_texts,
        mindformers_upstream.FIELDS / "keys.yaml",
    )


def _verl(name: str, *overrides: str) -> Case:
    paths = verl_train.paths_of({"tokenize": Path("/tokenized")}, Path("/run"))
    return Case(
        name,
        ("model.path=/models/qwen", "experiment=verl_7b", *overrides),
        "engine",
        VerlJob.from_config,
        ("model", "layout", "tokenize", "rollout", "reward", "train", "engine", "seed"),
        verl_upstream.fields,
        verl_rules.RULES,
        lambda job: {"": verl_recipe.recipe(job, paths)},
        lambda config: {"": verl_recipe.text(VerlJob.from_config(config), paths)},
        verl_upstream.FIELDS / "keys.yaml",
    )


QWEN = ("engine=mindrlhf", "model=qwen2_5_7b", "layout=dp2_mp2_pp2")
CASES = (
    _mindrlhf("mindrlhf e8a8fc1", *QWEN),
    _mindrlhf("mindrlhf 0cd087455", *QWEN, "engine.contract=0cd087455"),
    _mindrlhf("mindrlhf DeepSeek-V3", "experiment=mindrlhf_deepseek_v3"),
    _mindformers("mindformers", *QWEN),
    _mindformers("mindformers without a pipeline", *QWEN[:2], "layout=dp4_mp2_pp1"),
    _mindspeed_rl("mindspeed_rl 05a90d7", "model=qwen2_5_7b"),
    _mindspeed_rl(
        "mindspeed_rl experts", "model=qwen3_30b_a3b", "train.schedule=linear", "train.final_share=0.1"
    ),
    _mindspeed_rl("mindspeed_rl separate", "model=qwen3_8b", "engine.use_integrated_worker=false"),
    _mindspeed_rl("mindspeed_rl 667a547", "model=qwen2_5_7b", "engine.contract=667a547"),
    _verl("verl FSDP2"),
    _verl("verl Megatron", "engine.strategy=megatron"),
)
