"""Sections that follow from a path: the model from its config.json, the dataset from the user's files."""

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import Any

from pipeline.errors import ConfigError, Problem
from stages.base.files import read_json
from stages.fetch.user_files import has_test_file
from stages.models.config_keys import described, refused
from stages.models.families import FAMILIES, recognised

IMPLYING = {"model": ("path",), "dataset": ("path", "test_path", "hub", "files")}
"""Section -> keys from which `complete` derives others."""
DEFAULT_MODEL = "tiny"
"""Model of a run that names none."""
_COPIED_KEYS = ("max_position_embeddings", "initializer_range", "torch_dtype")


def complete(values: Mapping[str, Any], overrides: Sequence[str]) -> dict[str, Any]:
    """Return a composed configuration with the model and dataset that `model.path` and `dataset.path` imply.

    Typed keys keep their values. Values of a wrong type are ignored: reading the configuration reports them.

    Raises:
        ConfigError: there is no config.json in model.path, or its family is unknown.
    """
    typed = {override.lstrip("+").partition("=")[0] for override in overrides}
    completed = dict(values)
    if isinstance(values.get("model"), dict):
        completed["model"] = _complete_model(values["model"], typed)
    if isinstance(values.get("dataset"), dict):
        completed["dataset"] = _complete_dataset(values["dataset"], typed)
    return completed


def _complete_model(model: dict[str, Any], typed: AbstractSet[str]) -> dict[str, Any]:
    """Fill in family and shape from the config.json of model.path if no model is named."""
    is_default = model.get("source") == "builtin" or model.get("name") == DEFAULT_MODEL
    is_builtin = "model.source" in typed and model.get("source") == "builtin"
    if "model" in typed or is_builtin or not is_default or not model.get("path"):
        return model
    derived = section(Path(str(model["path"])), "model.path", "give one, or name the model: model=qwen3_8b")
    derived = {key: value for key, value in derived.items() if f"model.{key}" not in typed}
    return model | {"source": "local", "param_init_type": "bfloat16"} | derived


def _complete_dataset(dataset: dict[str, Any], typed: AbstractSet[str]) -> dict[str, Any]:
    """Replace the built-in problems by the user's files if only these are requested."""
    builtin_requested = any(key in ("dataset", "dataset.source") for key in typed) or any(
        key.startswith("dataset.arith") for key in typed
    )
    files = {key: dataset.get(key) for key in IMPLYING["dataset"]}
    if dataset.get("source") != "builtin" or builtin_requested or not any(files.values()):
        return dataset
    # sizes and name are those of the built-in problems
    path, test_path = files["path"], files["test_path"]
    replaced = {"source": None, "arith": None, "train_rows": None, "name": "local" if path else "custom"}
    if isinstance(path, str) and has_test_file(path, test_path):
        replaced["test_rows"] = None
    return dataset | {key: value for key, value in replaced.items() if f"dataset.{key}" not in typed}


def section(directory: Path, path: str, remedy: str) -> dict[str, Any]:
    """Return the model section's keys from a directory's config.json, or raise ConfigError."""
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
