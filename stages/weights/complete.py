"""Writing of weight files, and complete checkpoints in mindformers' form (with param_name_map.json)."""

import json
import math
from collections.abc import Mapping
from contextlib import ExitStack, closing
from pathlib import Path

from stages.base.context import Progress
from stages.models.config import Dtype
from stages.models.tensor_layout import Box, full_box, slice_shape
from stages.weights.config import Format
from stages.weights.dtypes import ITEM_BYTES, storage_code
from stages.weights.outputs import OutputFile, Target, check_space, complete_directory
from stages.weights.sources import PARAM_MAP_NAME, Tensor, open_ranks
from stages.weights.strategy.files import read_strategy
from stages.weights.transfer import Move, transfer

SHARD_BYTES = 5 * 10**9
"""Hugging Face's usual limit of one file."""


def write_files(
    tensors: Mapping[str, Tensor],
    files: Mapping[Path, Mapping[str, Box]],
    dtype: Dtype | None,
    progress: Progress | None = None,
) -> None:
    """Write parts of full tensors to weight files, casting floating ones; read every source byte once.

    `files`: file (.safetensors or .ckpt) -> the tensors that it gets and the part of each.

    Raises:
        InputError: a source ends early, or the disk is full.
    """
    codes = {name: storage_code(tensor.dtype, dtype) for name, tensor in tensors.items()}
    targets: dict[str, list[Target]] = {name: [] for name in tensors}
    outputs: list[OutputFile] = []
    with ExitStack() as opened:
        for path, boxes in files.items():
            listed = [
                (name, codes[name], () if tensors[name].scalar else slice_shape(box))
                for name, box in boxes.items()
            ]
            output = opened.enter_context(closing(OutputFile(path, listed, {"format": "ms"})))
            outputs.append(output)
            for name, box in boxes.items():
                targets[name] += output.targets(name, box)
        check_space(outputs)
        moves = [Move(tensors[name], tuple(parts), codes[name]) for name, parts in targets.items()]
        transfer(moves, progress=progress)


def by_size(tensors: Mapping[str, Tensor], dtype: Dtype | None) -> dict[str, int]:
    """Return tensor name -> number of its file, filling files in order up to SHARD_BYTES."""
    result, number, filled = {}, 0, 0
    for name, tensor in tensors.items():
        size = math.prod(tensor.shape) * ITEM_BYTES[storage_code(tensor.dtype, dtype)]
        if filled and filled + size > SHARD_BYTES:
            number, filled = number + 1, 0
        result[name] = number
        filled += size
    return result


def as_source(tensors: Mapping[str, Tensor]) -> dict[str, int]:
    """Return tensor name -> number of its file, grouped as the source's files are."""
    files = sorted({tensor.pieces[0].stored.file for tensor in tensors.values()})
    return {name: files.index(tensor.pieces[0].stored.file) for name, tensor in tensors.items()}


def write_complete(
    tensors: Mapping[str, Tensor], number_of: Mapping[str, int], out: Path, dtype: Dtype | None = None,
    file_format: Format = "safetensors", progress: Progress | None = None,
) -> None:  # fmt: skip
    """Write full tensors as model-0000k-of-0000n.safetensors and param_name_map.json, or as one model.ckpt.

    `number_of`: file number of each tensor, from 0 (see `by_size` and `as_source`); `out`: an existing
    directory.

    Raises:
        InputError: a source ends early or the disk is full.
    """
    boxes = {name: full_box(tensor.shape) for name, tensor in tensors.items()}
    if file_format == "ckpt":  # its readers accept one file only
        write_files(tensors, {out / "model.ckpt": boxes}, dtype, progress)
        return
    count = max(number_of.values(), default=0) + 1
    names = [f"model-{i + 1:05d}-of-{count:05d}.safetensors" for i in range(count)]
    files: dict[Path, dict[str, Box]] = {out / name: {} for name in names}
    for name, box in boxes.items():
        files[out / names[number_of[name]]][name] = box
    write_files(tensors, files, dtype, progress)
    name_map = {name: names[number_of[name]] for name in tensors}
    (out / PARAM_MAP_NAME).write_text(json.dumps(name_map, indent=1) + "\n", encoding="utf-8")


def merge_directory(
    source: Path, strategy: Path, out: Path, dtype: Dtype | None = None, progress: Progress | None = None
) -> None:
    """Merge rank_K directories into one complete mindformers checkpoint; `out` appears when complete.

    `source`: directory with rank_0, rank_1, … as split or mindrlhf writes them (its prefixes are removed).

    Raises:
        InputError: a rank, slice or stage is missing, or shapes don't fit.
    """
    tensors = open_ranks(source, read_strategy(strategy))
    with complete_directory(out) as directory:
        write_complete(tensors, by_size(tensors, dtype), directory, dtype, progress=progress)
