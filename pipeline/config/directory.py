"""A Hugging Face directory that says itself which model it holds."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pipeline.errors import ConfigError, Problem
from stages.base.files import read_json
from stages.models.families import FAMILIES, recognised
from stages.models.hf_config import described

_BESIDES = ("max_position_embeddings", "initializer_range", "torch_dtype")


def alone(values: Mapping[str, Any], overrides: Sequence[str]) -> dict[str, Any]:
    """What `model.path=DIR` means where no model is named: family and shape of DIR's config.json.

    Keys of the model section that are typed stay as they are typed.

    Raises:
        ConfigError: no config.json is there, or of no family that is known.
    """
    typed = {override.lstrip("+").partition("=")[0] for override in overrides}
    model = values.get("model")
    named = {"model", "model.source", "model.name"} & typed
    if named or not isinstance(model, dict) or model.get("source") != "builtin" or not model.get("path"):
        return dict(values)
    told = section(Path(str(model["path"])), "model.path", "give one, or name the model: model=qwen3_8b")
    told = {key: value for key, value in told.items() if f"model.{key}" not in typed}
    return {**values, "model": model | {"source": "local", "param_init_type": "bfloat16"} | told}


def section(directory: Path, path: str, remedy: str) -> dict[str, Any]:
    """Keys of the model section that a directory's config.json says; its ids are read where they are needed.

    Raises:
        ConfigError: it has none, or of no family that is known.
    """
    try:
        config = read_json(directory / "config.json")
        if not isinstance(config, dict):
            raise ValueError("it holds no JSON object")
    except (OSError, ValueError) as error:
        rule = f"must be a Hugging Face directory with a config.json ({error})"
        raise ConfigError([Problem(path, directory, rule, remedy)]) from error
    family = recognised(config)
    if family is None:
        known = ", ".join(family.architecture for family in FAMILIES.values())
        listed = config.get("architectures") or config.get("model_type")
        where = f"{directory / 'config.json'}: architectures"
        raise ConfigError([Problem(where, listed, f"must be one of {known}", "give such a model")])
    config.setdefault("torch_dtype", config.get("dtype"))
    told = {key: config[key] for key in _BESIDES if config.get(key) is not None}
    return {"name": family.name, "family": family.name, **told, **described(config, family)}
