"""Complete checkpoints in mindformers' form: numbered safetensors files and param_name_map.json."""

import json
import math
from collections.abc import Mapping
from pathlib import Path

from stages.models.config import Dtype
from stages.weights.config import Format
from stages.weights.dtypes import CODES, FLOATS, ITEM_BYTES
from stages.weights.outputs import OutputFiles, complete_directory
from stages.weights.slicing import read_strategy
from stages.weights.sources import PARAM_MAP_NAME, Tensor, open_ranks
from stages.weights.transfer import Move, Progress, transfer

SHARD_BYTES = 5 * 10**9
"""Hugging Face's usual limit of one file."""


def stored_dtype(tensor: Tensor, dtype: Dtype | None) -> str:
    """Return the safetensors code to store a tensor in: `dtype` for floating tensors if one is given."""
    return CODES[dtype] if dtype is not None and tensor.dtype in FLOATS else tensor.dtype


def by_size(tensors: Mapping[str, Tensor], dtype: Dtype | None, limit: int = SHARD_BYTES) -> dict[str, int]:
    """Tensor name -> number of its file, filling files in order up to `limit` bytes."""
    result, number, filled = {}, 0, 0
    for name, tensor in tensors.items():
        size = math.prod(tensor.shape) * ITEM_BYTES[stored_dtype(tensor, dtype)]
        if filled and filled + size > limit:
            number, filled = number + 1, 0
        result[name] = number
        filled += size
    return result


def as_source(tensors: Mapping[str, Tensor]) -> dict[str, int]:
    """Tensor name -> number of its file, grouped as the source's files are."""
    files = sorted({tensor.pieces[0].stored.file for tensor in tensors.values()})
    return {name: files.index(tensor.pieces[0].stored.file) for name, tensor in tensors.items()}


def write_complete(
    tensors: Mapping[str, Tensor],
    number_of: Mapping[str, int],
    out: Path,
    dtype: Dtype | None = None,
    file_format: Format = "safetensors",
    progress: Progress | None = None,
) -> None:
    """Write full tensors as model-0000k-of-0000n.safetensors and param_name_map.json, or as one model.ckpt.

    Args:
        tensors: what to write, under these names.
        number_of: file number of each, from 0; see `by_size` and `as_source`.
        out: an existing directory.
        dtype: cast floating tensors; None keeps them.
        file_format: safetensors or ckpt.
        progress: told bytes.

    Raises:
        InputError: a source ends early or the disk is full.
    """
    count = max(number_of.values(), default=0) + 1
    names = [f"model-{i + 1:05d}-of-{count:05d}.safetensors" for i in range(count)]
    if file_format == "ckpt":  # its readers know one file only
        names, number_of = ["model.ckpt"], dict.fromkeys(tensors, 0)
    moves = []
    with OutputFiles() as files:
        for number, file_name in enumerate(names):
            chosen = [tensor for name, tensor in tensors.items() if number_of[name] == number]
            listed = [
                (tensor.name, stored_dtype(tensor, dtype), () if tensor.scalar else tensor.shape)
                for tensor in chosen
            ]
            file = files.create(out / file_name, listed, {"format": "ms"})
            for tensor in chosen:
                box = tuple(slice(0, size) for size in tensor.shape)
                targets = tuple(file.targets(tensor.name, box))
                moves.append(Move(tensor, targets, stored_dtype(tensor, dtype)))
        files.check_space()
        transfer(moves, progress=progress)
    if file_format == "ckpt":
        return
    files_of = {name: names[number_of[name]] for name in tensors}
    (out / PARAM_MAP_NAME).write_text(json.dumps(files_of, indent=1) + "\n", encoding="utf-8")


def merge_directory(
    source: Path, strategy: Path, out: Path, dtype: Dtype | None = None, progress: Progress | None = None
) -> None:
    """Merge rank_K directories into one complete mindformers checkpoint; `out` appears when complete.

    Args:
        source: directory with rank_0, rank_1, … as split or mindrlhf writes them (its prefixes are removed).
        strategy: their merged strategy file, or the directory of all ranks' files.
        out: new directory: numbered safetensors files and param_name_map.json.
        dtype: cast floating tensors; None keeps them.
        progress: told bytes.

    Raises:
        InputError: a rank, slice or stage is missing, or shapes don't fit.
    """
    tensors = open_ranks(source, read_strategy(strategy))
    with complete_directory(out) as directory:
        write_complete(tensors, by_size(tensors, dtype), directory, dtype, progress=progress)
