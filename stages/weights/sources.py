"""Full tensors and their pieces on disk: in one file, a sharded directory, or rank directories."""

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from stages.base.errors import InputError
from stages.base.files import read_object, stays_below
from stages.models.tensor_layout import Box, TensorLayout, full_box, slice_of, slice_shape
from stages.weights.ckpt import read_ckpt
from stages.weights.header import StoredTensor, read_header
from stages.weights.index import INDEX_NAME, SINGLE_NAME
from stages.weights.strategy.files import Strategy, plain_name

PARAM_MAP_NAME = "param_name_map.json"
_RANK_DIRECTORY = re.compile(r"rank_(\d+)")
COUNTER = ".expert_load"
"""End of the names of parameters in which mindformers counts the tokens of each expert: they are no weights,
and are left out.

Source: mindformers 051d65f, modules/transformer/moe.py:1269."""
_STEP_FILE = re.compile(r".*-(\d+)_(\d+)\.(?:safetensors|ckpt)")
"""MindSpore's names of checkpoints: PREFIX_rank_N-EPOCH_STEP.safetensors."""


@dataclass(frozen=True)
class Piece:
    """A part of a full tensor that is in one stored tensor."""

    stored: StoredTensor
    box: Box
    """Position in the full tensor; the first slice may have a step (interleaved rows)."""
    row: int = 0
    """First row of the stored tensor that belongs to the piece."""
    step: int = 1
    """Distance between its rows in the stored tensor."""


@dataclass(frozen=True)
class Tensor:
    """A full tensor and the pieces that cover it. A scalar has shape (1,) and `scalar`."""

    name: str
    dtype: str
    """safetensors code."""
    shape: tuple[int, ...]
    pieces: tuple[Piece, ...]
    scalar: bool = False
    """Stored with shape ()."""


def as_tensor(stored: StoredTensor) -> Tensor:
    """Return a tensor that one stored tensor contains completely."""
    shape = stored.shape or (1,)
    piece = Piece(stored, full_box(shape))
    return Tensor(stored.name, stored.dtype, shape, (piece,), scalar=not stored.shape)


def read_file(file: Path) -> Mapping[str, StoredTensor]:
    """Return the tensors of a .safetensors or .ckpt file."""
    return read_ckpt(file) if file.suffix == ".ckpt" else read_header(file).tensors


def _weight_files(directory: Path) -> list[Path]:
    """Return the weight files of a directory: safetensors, or MindSpore's older format if there are none."""
    files = sorted(directory.glob("*.safetensors")) or sorted(directory.glob("*.ckpt"))
    if files:
        return files
    for pickle in sorted([*directory.glob("*.bin"), *directory.glob("*.pt"), *directory.glob("*.pth")]):
        read_header(pickle)  # raises, because pickles are refused
    rule = "holds no *.safetensors and no *.ckpt"
    raise InputError(directory, None, rule, "give a directory with complete weights")


def open_directory(path: Path) -> dict[str, StoredTensor]:
    """Return the tensors of a weight file or of a complete (not rank-wise) directory.

    Args:
        path: a .safetensors or .ckpt file; or a directory with model.safetensors,
            model.safetensors.index.json, *.safetensors or *.ckpt. The first of these is read, as in
            transformers. Without an index, a param_name_map.json lists the files that are read if there are
            several; next to a single file it is ignored, because mindrlhf leaves one with its own names in
            directories that it loads.

    Raises:
        InputError: naming file and tensor.
    """
    if path.is_file():
        return dict(read_file(path))
    indexed, mapped = ((path / name).is_file() for name in (INDEX_NAME, PARAM_MAP_NAME))
    if (path / SINGLE_NAME).is_file() and (indexed or not mapped):
        return dict(read_file(path / SINGLE_NAME))
    if indexed:
        return _indexed(path / INDEX_NAME)
    files = _weight_files(path)
    if len(files) > 1 and (path / PARAM_MAP_NAME).is_file():
        return _indexed(path / PARAM_MAP_NAME)
    return _join(map(read_file, files))


def _join(files: Iterable[Mapping[str, StoredTensor]]) -> dict[str, StoredTensor]:
    result: dict[str, StoredTensor] = {}
    for tensors in files:
        for name, stored in tensors.items():
            if name in result:
                rule = f"is in {result[name].file} too"
                raise InputError(f"{stored.file}: {name}", None, rule, "remove one of the two files")
            result[name] = stored
    return result


def _indexed(index: Path) -> dict[str, StoredTensor]:
    """Return the tensors that an index file lists, checked against the headers of its files."""
    files = read_weight_map(index)
    result = _join(read_header(index.parent / file).tensors for file in sorted(set(files.values())))
    for name in (*files, *result):
        actual = result[name].file.name if name in result else "no file"
        if files.get(name) != actual:
            rule = f"the index names {files.get(name, 'no file')} for this tensor; {actual} contains it"
            raise InputError(f"{index}: {name}", None, rule, "download both again")
    return {name: result[name] for name in files}


def read_weight_map(index: Path) -> dict[str, str]:
    """Return tensor name -> file name from model.safetensors.index.json or param_name_map.json."""
    values = read_object(index, "download it again")
    files = values.get("weight_map", values)
    if not isinstance(files, dict) or not all(isinstance(file, str) for file in files.values()):
        raise InputError(index, None, "must map tensor names to file names", "download it again")
    for name, file in files.items():
        if "/" in file or not stays_below(file) or len(file.encode("utf-8", "replace")) > 255:
            rule = "must be a file name within the index's own directory"
            raise InputError(f"{index}: {name}", file, rule, "do not use this index")
        if not (index.parent / file).is_file():
            pickle = file.endswith((".bin", ".pt"))
            remedy = "save the model as safetensors" if pickle else "download the missing shard"
            rule = f"is missing; {index.name} needs it for {name}"
            raise InputError(index.parent / file, None, rule, remedy)
    return dict(files)


def rank_directories(root: Path) -> dict[int, Path]:
    """Return the rank_K directories by rank; at least one.

    Raises:
        InputError: `root` holds none.
    """
    directories = {
        int(match[1]): path
        for path in (root.iterdir() if root.is_dir() else ())
        if (match := _RANK_DIRECTORY.fullmatch(path.name)) and path.is_dir()
    }
    if not directories:
        remedy = "give the directory that holds rank_0, rank_1 …"
        raise InputError(root, None, "holds no rank_K directory", remedy)
    return dict(sorted(directories.items()))


def open_rank(directory: Path) -> dict[str, StoredTensor]:
    """Return one rank's weights by plain name, from its only file or MindSpore's newest checkpoint."""
    files = _weight_files(directory)
    file = files[0]
    if len(files) > 1:
        steps = {file: match for file in files if (match := _STEP_FILE.fullmatch(file.name))}
        if len(steps) < len(files):
            rule = "must hold one weight file"
            raise InputError(directory, f"{len(files)} files", rule, "leave only the intended checkpoint")
        file = max(files, key=lambda file: (int(steps[file][1]), int(steps[file][2])))
    stored = read_file(file)
    return {plain_name(name): tensor for name, tensor in stored.items() if not name.endswith(COUNTER)}


def open_ranks(root: Path, strategy: Strategy) -> dict[str, Tensor]:
    """Return full tensors from rank_K directories and their strategy.

    Raise InputError if a slice is missing or has the wrong shape, or a tensor is not in the strategy.
    """
    ranks = {rank: open_rank(path) for rank, path in rank_directories(root).items()}
    if max(ranks) >= strategy.ranks:
        rule = f"the strategy has {strategy.ranks} ranks"
        raise InputError(root, f"rank_{max(ranks)}", rule, "give the strategy of these weights")
    pieces: dict[str, dict[tuple[tuple[int, int], ...], Piece]] = {}
    shapes: dict[str, tuple[int, ...]] = {}
    for rank, tensors in ranks.items():
        for name, stored in tensors.items():
            where, shape = f"{stored.file}: {name}", stored.shape or (1,)
            layout = _layout_of(name, stored, strategy)
            full_shape = shapes.setdefault(name, layout.full_shape(shape))
            box = slice_of(layout, full_shape, rank, where)
            if slice_shape(box) != shape:
                rule = "its shape differs from the other ranks'"
                raise InputError(where, list(shape), rule, "give the ranks of one run")
            # Replicas hold the same bytes: the first rank that has them is read.
            extents = tuple((extent.start, extent.stop) for extent in box)
            pieces.setdefault(name, {}).setdefault(extents, Piece(stored, box))
    return {
        name: _assemble(name, shapes[name], tuple(parts.values()), root) for name, parts in pieces.items()
    }


def _layout_of(name: str, stored: StoredTensor, strategy: Strategy) -> TensorLayout:
    if name in strategy.tensors:
        return strategy.tensors[name]
    if math.prod(stored.shape) == 1:  # step counters and the like: the same on every rank
        return TensorLayout((strategy.cards_per_stage,), (-1,) * max(1, len(stored.shape)), 0, 0)
    rule = "the strategy does not list this tensor"
    raise InputError(f"{stored.file}: {name}", None, rule, "give the strategy of these weights")


def _assemble(name: str, shape: tuple[int, ...], pieces: tuple[Piece, ...], root: Path) -> Tensor:
    dtypes = {piece.stored.dtype for piece in pieces}
    if len(dtypes) > 1:
        rule = f"its slices have different dtypes: {', '.join(sorted(dtypes))}"
        raise InputError(root, name, rule, "give the ranks of one run")
    covered = sum(math.prod(slice_shape(piece.box)) for piece in pieces)
    if covered != math.prod(shape):
        rule = f"only {covered} of {math.prod(shape)} elements are present"
        raise InputError(root, name, rule, "give all rank directories")
    return Tensor(name, dtypes.pop(), shape, pieces, scalar=not pieces[0].stored.shape)
