"""A Hugging Face directory: checks, and links to the user's files."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from stages.base.errors import ConfigError, InputError, Problem
from stages.base.files import read_object
from stages.fetch.config import MODEL_FILES, TOKENIZER_AND_TEMPLATE
from stages.fetch.download import link
from stages.models.config import ModelConfig
from stages.models.config_keys import described, head_size, refused
from stages.models.families import family_of, recognised
from stages.tokenizer import require_files
from stages.weights.index import INDEX_NAME, SINGLE_NAME
from stages.weights.names import check_float
from stages.weights.sources import PARAM_MAP_NAME, open_directory

CONVERTED = (PARAM_MAP_NAME, "ms-model.safetensors.index.json")
"""Indices in directories that mindformers' convert_weight.py writes."""


def link_model(root: Path, model: ModelConfig, output: Path, with_tokenizer: bool = True) -> None:
    """Check the user's directory `root` and link its weights, config and tokenizer files into `output`."""
    names = check_model(root, model)
    if with_tokenizer:
        require_files(root)
    for name in (*names, *MODEL_FILES):
        if (root / name).is_file() and (with_tokenizer or name not in TOKENIZER_AND_TEMPLATE):
            link(root / name, output / name)


def check_model(root: Path, model: ModelConfig) -> set[str]:
    """Check that the directory holds the configured model; return the names of index and weight files."""
    if not root.is_dir():
        raise InputError(root, None, "is not a directory", "set model.path to a Hugging Face directory")
    check_config(read_object(root / "config.json"), model, root / "config.json")
    if not (root / SINGLE_NAME).is_file() and not (root / INDEX_NAME).is_file():
        remedy = "save the model again with save_pretrained(safe_serialization=True); pickles are not read"
        if any((root / name).is_file() for name in CONVERTED):
            remedy = (
                "mindformers' script converted these: give the directory that it read; convert does the rest"
            )
        raise InputError(root, None, f"holds neither {SINGLE_NAME} nor {INDEX_NAME}", remedy)
    stored = open_directory(root).values()
    for tensor in stored:
        check_float(tensor)
    names = {tensor.file.name for tensor in stored}
    return names if names == {SINGLE_NAME} else names | {INDEX_NAME}


def check_config(config: Mapping[str, Any], model: ModelConfig, path: Path) -> None:
    """Check that the keys of config.json are supported and agree with the configured shape."""
    family = family_of(model)
    if recognised(config) is family:
        problems = refused(config, family, path)
    else:
        listed = config.get("architectures") or config.get("model_type")
        rule = f"must be {family.architecture}, of model.family={family.name}"
        problems = [Problem(f"{path}: architectures", listed, rule)]
    section, expected = asdict(model), described(config, family)
    for key, value in expected.items():
        configured = section[key]
        if key == "head_dim" and (value or configured):
            value, configured = head_size(expected), model.head_size
        for name, given, wanted in _differing(key, configured, value):
            rule = f"disagrees with {path}: {name.rpartition('.')[2]}={wanted}"
            remedy = "choose the model that fits, or override the key"
            problems.append(Problem(f"model.{name}", given, rule, remedy))
    if problems:
        raise ConfigError(problems)


def _differing(key: str, configured: Any, value: Any) -> Iterator[tuple[str, Any, Any]]:
    """Yield name, configured value and that of config.json where they differ; of a group, key by key."""
    if isinstance(configured, dict) and isinstance(value, dict):
        for name in configured:
            yield from _differing(f"{key}.{name}", configured[name], value.get(name))
    elif value != configured:
        yield key, configured, value
