"""Model section derived from the config.json of a Hugging Face directory."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pipeline.errors import ConfigError, Problem
from stages.base.files import read_json
from stages.models.config_keys import refused
from stages.models.families import FAMILIES, recognised
from stages.models.hf_config import described

_COPIED_KEYS = ("max_position_embeddings", "initializer_range", "torch_dtype")


def complete_model(values: Mapping[str, Any], overrides: Sequence[str]) -> dict[str, Any]:
    """Fill in family and shape from the config.json of model.path if no model is named.

    Keys of the model section that were typed keep their values.

    Raises:
        ConfigError: there is no config.json, or its family is unknown.
    """
    typed = {override.lstrip("+").partition("=")[0] for override in overrides}
    model = values.get("model")
    named = {"model", "model.source"} & typed
    if named or not isinstance(model, dict) or model.get("source") != "builtin" or not model.get("path"):
        return dict(values)
    derived = section(Path(str(model["path"])), "model.path", "give one, or name the model: model=qwen3_8b")
    derived = {key: value for key, value in derived.items() if f"model.{key}" not in typed}
    return {**values, "model": model | {"source": "local", "param_init_type": "bfloat16"} | derived}


def section(directory: Path, path: str, remedy: str) -> dict[str, Any]:
    """Return the model section's keys from a directory's config.json, without token ids.

    Raises:
        ConfigError: there is no config.json, its family is unknown, or one of its keys is not supported.
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
    if problems := refused(config, family, directory / "config.json"):
        raise ConfigError(problems)
    if config.get("dtype") is not None:  # transformers' newer name, which takes precedence
        config["torch_dtype"] = config["dtype"]
    copied = {key: config[key] for key in _COPIED_KEYS if config.get(key) is not None}
    return {"name": family.name, "family": family.name, **copied, **described(config, family)}
