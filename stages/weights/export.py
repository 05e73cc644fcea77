"""Mindformers parameters back to a Hugging Face directory like the fetched one."""

import json
import math
import shutil
from collections.abc import Mapping
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

from stages.base.context import Progress
from stages.base.errors import InputError
from stages.base.files import read_object
from stages.models.config import Dtype, Shape
from stages.models.decoder import HEADS
from stages.models.families import family_of, weights_of
from stages.models.family import Weight
from stages.models.tensor_layout import full_box
from stages.weights.dtypes import ITEM_BYTES, storage_code
from stages.weights.header import StoredTensor, read_header
from stages.weights.index import INDEX_NAME, unused_index
from stages.weights.names import check_float, check_stored, is_fused, one_dtype, read_shape
from stages.weights.outputs import OutputFile, Target, check_space, complete_directory
from stages.weights.sources import COUNTER, Tensor, as_tensor, open_directory
from stages.weights.transfer import Move, same_data, transfer

_WEIGHTS = (".safetensors", ".bin", ".pt", ".pth", ".h5", ".msgpack", ".gguf", ".onnx")
Placed = tuple[OutputFile, StoredTensor]
"""File that gets a tensor, and the reference's tensor of that name."""


def export(
    tensors: Mapping[str, Tensor], reference: Path, out: Path, shape: Shape, dtype: Dtype | None,
    progress: Progress | None = None,
) -> None:  # fmt: skip
    """Write mindformers parameters as a Hugging Face directory.

    Args:
        tensors: full parameters, plain or fused by qkv_concat.
        reference: Hugging Face directory of the same model: gives file names, the tensors of each file,
            dtypes, config, tokenizer and everything else that is not a weight.
        out: an existing directory.
        shape: of the model.
        dtype: storage dtype of floating tensors; None: as in the reference.
        progress: called with bytes.

    Raises:
        InputError: a parameter is missing, left over, or of a shape or dtype that does not fit.
    """
    stored = open_directory(reference)
    weights = {weight.name: weight for weight in weights_of(shape, is_fused(tensors))}
    _check(tensors, weights, stored, shape, reference)
    files: list[OutputFile] = []
    placed: dict[str, Placed] = {}
    with ExitStack() as opened:
        for path in sorted({tensor.file for tensor in stored.values()}):
            header = read_header(path)
            listed = [
                (tensor.name, storage_code(tensor.dtype, dtype), tensor.shape)
                for tensor in header.tensors.values()
            ]
            file = OutputFile(out / path.name, listed, header.metadata or None)
            files.append(opened.enter_context(closing(file)))
            placed |= {name: (file, tensor) for name, tensor in header.tensors.items()}
        check_space(files)
        transfer(_moves(tensors, weights, placed, shape, dtype), progress=progress)
    _copy_remaining(reference, out, dtype)


def export_directory(
    source: Path, reference: Path, out: Path, dtype: Dtype | None = None, progress: Progress | None = None
) -> None:
    """Export a complete mindformers directory; `out` appears when complete."""
    tensors = {name: as_tensor(stored) for name, stored in open_directory(source).items()}
    with complete_directory(out) as directory:
        export(tensors, reference, directory, read_shape(reference), dtype, progress=progress)


def _check(
    tensors: Mapping[str, Tensor], weights: Mapping[str, Weight], stored: Mapping[str, StoredTensor],
    shape: Shape, reference: Path,
) -> None:  # fmt: skip
    """Check that the parameters, the model and the reference fit each other."""
    # MindSpore checkpoints of tied models may contain the head that convert_weight.py duplicated, and
    # trainers save counters (mindrlhf's epoch_num and step_num).
    tied_heads = HEADS if shape.tie_word_embeddings else ()
    for name, tensor in tensors.items():
        where = f"{tensor.pieces[0].stored.file}: {name}"
        if name not in weights:
            if tensor.shape == (1,) or name in tied_heads or name.endswith(COUNTER):
                continue
            rule = "the model config has no such tensor"
            raise InputError(where, None, rule, "export weights without optimizer states")
        if tensor.shape != weights[name].shape:
            rule = f"the model config requires {list(weights[name].shape)}"
            raise InputError(where, list(tensor.shape), rule, "give the reference of these weights")
        check_float(tensor.pieces[0].stored)
    for name in weights:
        if name not in tensors:
            rule = "this tensor is missing in the weights to export"
            raise InputError(name, None, rule, "merge all ranks first")
    check_stored(stored, weights.values(), shape, reference)


def _moves(
    tensors: Mapping[str, Tensor], weights: Mapping[str, Weight], placed: Mapping[str, Placed], shape: Shape,
    dtype: Dtype | None,
) -> list[Move]:  # fmt: skip
    """Return the moves to each file's tensors: from the parameters, or else from the reference."""
    moves: list[Move] = []
    of_part: dict[str, Tensor] = {}
    for name, weight in weights.items():
        parts = [placed[part] for part in weight.parts]
        of_part |= dict.fromkeys(weight.parts, tensors[name])
        code = one_dtype(weight, [stored for _, stored in parts], dtype, "give --dtype, or export.dtype")
        moves.append(Move(tensors[name], _targets(weight, tensors[name], parts, dtype), code))
    repeated = family_of(shape).repeated(shape)
    for name in placed.keys() - of_part.keys():
        (file, stored), original = placed[name], repeated.get(name)
        tensor = as_tensor(stored)
        if original is not None and same_data(stored, placed[original][1]):
            tensor = of_part[original]
        target = Target(file, file.offset(name), full_box(tensor.shape))
        moves.append(Move(tensor, (target,), storage_code(stored.dtype, dtype)))
    return moves


def _targets(weight: Weight, tensor: Tensor, parts: list[Placed], dtype: Dtype | None) -> tuple[Target, ...]:
    """Return the destinations of a parameter's rows; interleaved rows are listed one by one."""
    tail = full_box(tensor.shape[1:])
    targets = []
    for run in weight.rows:
        file, stored = parts[run.part]
        row_bytes = math.prod(stored.shape[1:]) * ITEM_BYTES[storage_code(stored.dtype, dtype)]
        begin = file.offset(stored.name) + run.first * row_bytes
        if run.step == 1:
            targets.append(Target(file, begin, (run.rows, *tail)))
            continue
        targets += [
            Target(file, begin + i * run.step * row_bytes, (slice(row, row + 1), *tail))
            for i, row in enumerate(range(run.rows.start, run.rows.stop))
        ]
    return tuple(targets)


def _copy_remaining(reference: Path, out: Path, dtype: Dtype | None) -> None:
    """Copy what is not a weight; write the new dtype and size to config.json and the index."""
    unused = {INDEX_NAME} if unused_index(reference) else set()
    for file in sorted(reference.iterdir()):
        skipped = file.name.startswith(".") or file.name in {"manifest.json", "result.json", *unused}
        if file.is_file() and file.suffix not in _WEIGHTS and not skipped:
            shutil.copyfile(file, out / file.name)
    if dtype is None:
        return
    config = read_object(out / "config.json")
    config["torch_dtype"] = dtype
    if "dtype" in config:  # transformers reads the newer name first
        config["dtype"] = dtype
    _write_object(out / "config.json", config)
    if (out / INDEX_NAME).is_file():
        index = read_object(out / INDEX_NAME)
        total = sum(tensor.nbytes for tensor in open_directory(out).values())
        index["metadata"] = index.get("metadata", {}) | {"total_size": total}
        _write_object(out / INDEX_NAME, index)


def _write_object(file: Path, values: Mapping[str, Any]) -> None:
    file.write_text(json.dumps(values, indent=2) + "\n", encoding="utf-8")
