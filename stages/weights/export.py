"""Mindformers parameters back to a Hugging Face directory like the fetched one."""

import json
import math
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stages.base.errors import InputError
from stages.models.config import Dtype
from stages.models.decoder import HEADS
from stages.models.families import family_of, weights_of
from stages.models.family import Shape, Weight
from stages.weights.complete import stored_dtype
from stages.weights.dtypes import ITEM_BYTES
from stages.weights.header import Header, StoredTensor, read_header
from stages.weights.index import INDEX_NAME, unused_index
from stages.weights.names import is_fused, read_shape
from stages.weights.outputs import OutputFile, OutputFiles, Target, complete_directory
from stages.weights.sources import Tensor, open_directory, whole
from stages.weights.transfer import Move, Progress, same_data, transfer

_WEIGHTS = (".safetensors", ".bin", ".pt", ".pth", ".h5", ".msgpack", ".gguf", ".onnx")


def export(
    tensors: Mapping[str, Tensor],
    reference: Path,
    out: Path,
    shape: Shape,
    dtype: Dtype | None,
    progress: Progress | None = None,
) -> None:
    """Write mindformers parameters as a Hugging Face directory.

    Args:
        tensors: full parameters, plain or fused by qkv_concat.
        reference: Hugging Face directory of the same model: gives file names, which tensor lies in which,
            dtypes, config, tokenizer and everything else that is not a weight.
        out: an existing directory.
        shape: the model's shape.
        dtype: storage dtype of floating tensors; None: as in the reference.
        progress: told bytes.

    Raises:
        InputError: a parameter is missing, left over or has the wrong shape.
    """
    stored = open_directory(reference)
    sources = _sources(tensors, stored, shape, reference)
    headers = [read_header(file) for file in sorted({tensor.file for tensor in stored.values()})]
    with OutputFiles() as files:
        placed: dict[str, tuple[OutputFile, StoredTensor]] = {}
        for header in headers:
            file = files.create(out / header.file.name, _listed(header, dtype), header.metadata or None)
            placed |= {name: (file, tensor_out) for name, tensor_out in header.tensors.items()}
        files.check_space()
        transfer(_moves(sources, placed, shape, dtype), progress=progress)
    _copy_remaining(reference, out, dtype)
    _verify(out, stored, dtype)


def export_directory(
    source: Path, reference: Path, out: Path, dtype: Dtype | None = None, progress: Progress | None = None
) -> None:
    """`export` on paths alone: `source` is a complete mindformers directory; `out` appears when complete."""
    tensors = {name: whole(stored) for name, stored in open_directory(source).items()}
    with complete_directory(out) as directory:
        export(tensors, reference, directory, read_shape(reference), dtype, progress=progress)


def _sources(
    tensors: Mapping[str, Tensor], stored: Mapping[str, StoredTensor], shape: Shape, reference: Path
) -> dict[str, Tensor]:
    """Check the parameters; add what a reference has beyond them (a repeated tied head, rotary buffers)."""
    expected = {weight.name: weight for weight in weights_of(shape, is_fused(tensors))}
    # MindSpore checkpoints of tied models may carry the head that convert_weight.py duplicated, and trainers
    # save counters (mindrlhf's epoch_num and step_num).
    extra = {name for name, tensor in tensors.items() if tensor.shape == (1,)}
    extra |= {*HEADS} if shape.tie_word_embeddings else set()
    names = [name for name in tensors if name in expected or name not in extra]
    for name in names:
        where = f"{tensors[name].pieces[0].stored.file}: {name}"
        if name not in expected:
            raise InputError(
                where, None, "the model config has no such tensor", "export weights without optimizer states"
            )
        if tensors[name].shape != expected[name].shape:
            rule = f"the model config asks for {list(expected[name].shape)}"
            raise InputError(where, list(tensors[name].shape), rule, "give its own reference")
    for name, weight in expected.items():
        if name not in tensors:
            raise InputError(
                name, None, "this tensor is missing in the weights to export", "merge all ranks first"
            )
        for part in weight.parts:
            if part not in stored:
                rule = "this tensor is missing"
                raise InputError(f"{reference}: {part}", None, rule, "give the reference of these weights")
    return {name: tensors[name] for name in expected}


def _listed(header: Header, dtype: Dtype | None) -> list[tuple[str, str, tuple[int, ...]]]:
    ordered = sorted(header.tensors.values(), key=lambda tensor: tensor.offset)
    return [(tensor.name, _code(tensor, dtype), tensor.shape) for tensor in ordered]


def _code(stored: StoredTensor, dtype: Dtype | None) -> str:
    return stored_dtype(whole(stored), dtype)


def _moves(
    sources: Mapping[str, Tensor],
    placed: Mapping[str, tuple[OutputFile, StoredTensor]],
    shape: Shape,
    dtype: Dtype | None,
) -> list[Move]:
    """Every file's tensors from the parameters; what has no parameter, from the reference itself."""
    moves: list[Move] = []
    done: set[str] = set()
    weights = {weight.name: weight for weight in weights_of(shape, is_fused(sources))}
    of_part = {weight.parts[0]: sources[weight.name] for weight in weights.values()}
    for name, tensor in sources.items():
        parts = weights[name].parts
        done.update(parts)
        targets = _targets(weights[name], tensor, [placed[part] for part in parts], dtype)
        moves.append(Move(tensor, targets, _code(placed[parts[0]][1], dtype)))
    repeated = family_of(shape).repeated(shape)
    for name in placed.keys() - done:
        stored, repeats = placed[name][1], repeated.get(name)
        trained = repeats is not None and same_data(stored, placed[repeats][1])
        tensor = of_part[repeats] if repeats is not None and trained else whole(stored)
        moves.append(Move(tensor, (_target(tensor, placed[name]),), _code(stored, dtype)))
    return moves


def _target(tensor: Tensor, destination: tuple[OutputFile, StoredTensor]) -> Target:
    file, stored = destination
    return Target(file, file.offset(stored.name), tuple(slice(0, size) for size in tensor.shape))


def _targets(
    weight: Weight, tensor: Tensor, parts: list[tuple[OutputFile, StoredTensor]], dtype: Dtype | None
) -> tuple[Target, ...]:
    """Return the destinations of a parameter's rows; interleaved rows are listed one by one."""
    if weight.arrange is None and not weight.stacked:
        return (_target(tensor, parts[0]),)
    tail = tuple(slice(0, size) for size in tensor.shape[1:])
    targets = []
    for run in weight.rows:
        file, stored = parts[run.part]
        row_bytes = math.prod(stored.shape[1:]) * ITEM_BYTES[_code(stored, dtype)]
        begin = file.offset(stored.name) + run.first * row_bytes
        if run.step == 1:
            targets.append(Target(file, begin, (run.rows, *tail)))
            continue
        rows = range(run.rows.start, run.rows.stop)
        targets += [
            Target(file, begin + i * run.step * row_bytes, (slice(row, row + 1), *tail))
            for i, row in enumerate(rows)
        ]
    return tuple(targets)


def _copy_remaining(reference: Path, out: Path, dtype: Dtype | None) -> None:
    """Copy what is not a weight; config.json and the index name the dtype and the size written."""
    unused = {INDEX_NAME} if unused_index(reference) else set()
    for file in sorted(reference.iterdir()):
        if (
            not file.is_file()
            or file.suffix in _WEIGHTS
            or file.name in {"manifest.json", "result.json", *unused}
            or file.name.startswith(".")
        ):
            continue
        shutil.copyfile(file, out / file.name)
    if dtype is not None:
        names = ("torch_dtype", "dtype")  # transformers reads the newer one first
        _rewrite(
            out / "config.json",
            lambda values: values | {name: dtype for name in names if name in values or name == names[0]},
        )
    if (out / INDEX_NAME).is_file() and dtype is not None:
        total = sum(tensor.nbytes for tensor in open_directory(out).values())
        _rewrite(
            out / INDEX_NAME,
            lambda values: values | {"metadata": values.get("metadata", {}) | {"total_size": total}},
        )


def _rewrite(file: Path, change: Any) -> None:
    values = json.loads(file.read_text(encoding="utf-8"))
    file.write_text(json.dumps(change(values), indent=2) + "\n", encoding="utf-8")


def _verify(out: Path, expected: Mapping[str, StoredTensor], dtype: Dtype | None) -> None:
    """Read the headers again: what stands on disk is what was asked."""
    written = open_directory(out)
    for name, tensor in expected.items():
        actual = written.get(name)
        if actual is None or actual.shape != tensor.shape or actual.dtype != _code(tensor, dtype):
            raise InputError(
                out, name, "the exported file does not hold this tensor as asked", "export again"
            )
