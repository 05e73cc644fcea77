"""A model in the user's own Hugging Face directory: checked, then linked file by file, never copied."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stages.errors import ConfigError, InputError, Problem
from stages.fetch.config import MODEL_FILES, SINGLE_WEIGHTS, WEIGHTS_INDEX
from stages.model_config import ModelConfig
from stages.tokenize.tokenizer import read_json

PICKLED = (".bin", ".pt", ".pth", ".ckpt")
SHAPE_KEYS = (
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "intermediate_size",
    "vocab_size",
    "rope_theta",
    "rms_norm_eps",
    "tie_word_embeddings",
)
LARGEST_HEADER = 100_000_000  # the safetensors library's own limit


def link(model: ModelConfig, output: Path) -> None:
    """Check the directory model.path and link its weights, config and tokenizer files into `output`.

    Raises:
        InputError: a file is missing, malformed, or of a kind that is refused.
        ConfigError: config.json disagrees with the model section; one Problem per key.
    """
    root = Path(model.path or "")
    if not root.is_dir():
        raise InputError(root, None, "is not a directory", "set model.path to a Hugging Face directory")
    check_config(read_json(root / "config.json"), model, root / "config.json")
    names = [*weight_files(root), *(name for name in MODEL_FILES if (root / name).is_file())]
    for name in names:
        (output / name).symlink_to((root / name).resolve())


def check_config(config: Mapping[str, Any], model: ModelConfig, path: Path) -> None:
    """Compare config.json with the configured shape.

    Raises:
        ConfigError: they disagree.
    """
    problems = []
    if config.get("model_type") != "qwen2":
        problems.append(Problem(f"{path}: model_type", config.get("model_type"), "must be qwen2"))
    for key in SHAPE_KEYS:
        # transformers 5 writes rope_theta into a group of its own
        found = config.get(key, config.get("rope_parameters", {}).get(key))
        wanted = getattr(model, key)
        if key == "tie_word_embeddings":
            found = bool(found)
        if found != wanted:
            rule = f"disagrees with {path}: {key}={found}"
            problems.append(Problem(f"model.{key}", wanted, rule, "choose the model that fits, or override the key"))
    if problems:
        raise ConfigError(problems)


def weight_files(root: Path) -> list[str]:
    """The names of the index (if any) and of all weight files, each checked to be safetensors.

    Raises:
        InputError: none is there, a shard is missing, or a file is not safetensors.
    """
    index = root / WEIGHTS_INDEX
    if index.is_file():
        shards = _shards(index)
        names = [WEIGHTS_INDEX, *shards]
    elif (root / SINGLE_WEIGHTS).is_file():
        shards = names = [SINGLE_WEIGHTS]
    else:
        pickled = sorted(file.name for file in root.iterdir() if file.suffix in PICKLED)
        remedy = f"needs {SINGLE_WEIGHTS}, or {WEIGHTS_INDEX} and its shards"
        if pickled:
            remedy = "save it again with save_pretrained(..., safe_serialization=True); pickles run code when read"
        raise InputError(root, pickled[0] if pickled else None, "holds no safetensors weights", remedy)
    for name in shards:
        _check_header(root / name)
    return names


def _shards(index: Path) -> list[str]:
    mapping = read_json(index).get("weight_map")
    if not isinstance(mapping, dict) or not mapping:
        raise InputError(index, None, "must hold a weight_map")
    names = sorted(set(map(str, mapping.values())))
    for name in names:
        if Path(name).name != name or not name.endswith(".safetensors"):
            raise InputError(index, name, "must name .safetensors files in the same directory")
        if not (index.parent / name).is_file():
            raise InputError(index.parent / name, None, f"is missing ({index.name} lists it)", "fetch it again")
    return names


def _check_header(path: Path) -> None:
    """Refuse a file that can't be safetensors, or that is shorter than its header says."""
    size = path.stat().st_size
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if size < 8 or length > min(size - 8, LARGEST_HEADER):
            remedy = "fetch it again (a Git LFS pointer? a broken download?)"
            raise InputError(path, f"{size} bytes", "is not a safetensors file", remedy)
        try:
            header = json.loads(file.read(length))
            ends = [entry["data_offsets"][1] for name, entry in header.items() if name != "__metadata__"]
        except (ValueError, TypeError, KeyError, IndexError, AttributeError) as error:
            raise InputError(path, None, f"has a malformed safetensors header: {error!r}", "fetch it again") from error
    expected = 8 + length + max(ends, default=0)
    if size != expected:
        raise InputError(path, f"{size} bytes", f"must have {expected} bytes as its header says", "fetch it again")
