"""A Hugging Face directory: checks, and links to the user's files."""

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from stages.base.errors import ConfigError, InputError, Problem
from stages.base.files import read_object
from stages.fetch.config import MODEL_FILES, TOKENIZER_AND_TEMPLATE
from stages.fetch.download import link
from stages.fetch.listing import PICKLED
from stages.models.config import ModelConfig
from stages.models.config_keys import refused
from stages.models.families import family_of, recognised
from stages.models.hf_config import described, head_size
from stages.weights.header import StoredTensor
from stages.weights.index import INDEX_NAME, SINGLE_NAME
from stages.weights.names import check_float
from stages.weights.sources import open_directory


def link_model(root: Path, model: ModelConfig, output: Path, with_tokenizer: bool = True) -> None:
    """Check the user's directory `root` and link its weights, config and tokenizer files into `output`."""
    names = check_model(root, model)
    for name in MODEL_FILES:
        if (root / name).is_file() and (with_tokenizer or name not in TOKENIZER_AND_TEMPLATE):
            names.append(name)
    for name in names:
        link(root / name, output / name)


def check_model(root: Path, model: ModelConfig) -> list[str]:
    """Check that the directory holds the configured model; return the names of index and weight files."""
    if not root.is_dir():
        raise InputError(root, None, "is not a directory", "set model.path to a Hugging Face directory")
    check_config(read_object(root / "config.json"), model, root / "config.json")
    names, stored = weight_files(root)
    if family_of(model).stored_as_float:
        for tensor in stored.values():
            check_float(tensor)
    return names


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
        if value is None and family.section is not None and key == family.name:
            continue  # weights converted by mindformers' script come without these keys
        if value != configured:
            rule = f"disagrees with {path}: {key}={value}"
            remedy = "choose the model that fits, or override the key"
            problems.append(Problem(f"model.{key}", configured, rule, remedy))
    if problems:
        raise ConfigError(problems)


def weight_files(root: Path) -> tuple[list[str], dict[str, StoredTensor]]:
    """Return the names of the index (if it is used) and of all weight files, and their tensors.

    A single file takes precedence over an index, see stages.weights.index.unused_index.

    Raises:
        InputError: there are no weights, a shard is missing, or a file is not safetensors.
    """
    is_single = (root / SINGLE_NAME).is_file()
    if not is_single and not (root / INDEX_NAME).is_file():
        pickled = sorted(file.name for file in root.iterdir() if file.suffix in PICKLED)
        remedy = f"give {SINGLE_NAME}, or {INDEX_NAME} and its shards"
        if pickled:
            remedy = "pickles run code when read: save again with save_pretrained(safe_serialization=True)"
        raise InputError(root, pickled[0] if pickled else None, "holds no safetensors weights", remedy)
    stored = open_directory(root)
    names = sorted({tensor.file.name for tensor in stored.values()})
    return names if is_single else [INDEX_NAME, *names], stored
