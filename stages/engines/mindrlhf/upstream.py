"""engine.upstream of mindrlhf: grpo_config.SECTION.KEY, and model.ROLE.KEY for the model file of a role."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stages.engines.mindrlhf.job import Job
from stages.engines.upstream import Upstream, load
from stages.models.families import network_of

FILES = {"train": "finetune.yaml", "reference": "reference.yaml", "generate": "predict.yaml"}
"""Role -> its model file."""
FIELDS = Path(__file__).with_name("fields")
TEMPLATE = FIELDS / "grpo_config.yaml"
NETWORKS = FIELDS.parents[1] / "mindformers" / "fields"
CLASSES = {"LlamaForCausalLM": "LlamaConfig", "DeepseekV3ForCausalLM": "DeepseekV3Config"}
"""Network -> class of its model_config."""


def fields(job: Job) -> Upstream:
    """Return the fields of the files of a run."""
    cls = CLASSES[network_of(job.model).arch["type"]]
    models = [(f"model.{role}.model.model_config", NETWORKS / f"{cls}.yaml", "") for role in FILES]
    if job.tutorial.experts is not None:
        models += [(f"model.{role}", NETWORKS / "template.yaml", "moe_config") for role in FILES]
    config = ("grpo_config", FIELDS / f"{job.version}.yaml", "")
    return load(FIELDS / "keys.yaml", config, *models, templates=(("grpo_config", TEMPLATE),))


def added(job: Job, file: str) -> Mapping[str, Any]:
    """Return the added keys of one rendered file."""
    groups = job.engine.upstream
    role = next((role for role, name in FILES.items() if name == file), None)
    keys: Mapping[str, Any] = (
        groups.get("grpo_config", {}) if role is None else groups.get("model", {}).get(role, {})
    )
    return keys
