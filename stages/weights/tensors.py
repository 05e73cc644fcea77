"""Weights as arrays in memory, for trainers and tests: load, merge ranks, write ranks."""

from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

import numpy as np

from stages.base.errors import InputError
from stages.models.config import Dtype
from stages.weights.dtypes import NUMPY, Array, CastOverflowError, cast, storage_code
from stages.weights.index import SINGLE_NAME
from stages.weights.outputs import OutputFile, check_space
from stages.weights.sources import as_tensor, open_directory, open_ranks
from stages.weights.strategy.files import Strategy, read_strategy
from stages.weights.transfer import read_tensor

_CODE_OF = {np.dtype(name).name: code for code, name in NUMPY.items()}


def load(path: Path) -> dict[str, Array]:
    """Load all tensors of a safetensors file or a complete directory; floats as float32.

    Raises:
        InputError: naming file and tensor.
    """
    return {name: read_tensor(as_tensor(stored)) for name, stored in open_directory(path).items()}


def merge_ranks(rank_root: Path, strategy: Path) -> dict[str, Array]:
    """Load full tensors from the rank_K directories in `rank_root` by their strategy; floats as float32.

    Raises:
        InputError: a slice is missing, has a wrong shape, or the strategy does not fit.
    """
    tensors = open_ranks(rank_root, read_strategy(strategy))
    return {name: read_tensor(tensor) for name, tensor in tensors.items()}


def write_ranks(full: Mapping[str, Array], strategy: Path, out_root: Path, dtype: Dtype | None) -> None:
    """Cut full tensors and write out_root/rank_K/model.safetensors for every rank, as `write_rank` does.

    Raises:
        InputError: weights and strategy list different tensors, one does not divide, or the disk is full.
    """
    layouts = read_strategy(strategy)
    for rank in range(layouts.ranks):
        write_rank(slices_of(full, layouts, rank), out_root / f"rank_{rank}" / SINGLE_NAME, dtype)


def slices_of(full: Mapping[str, Array], strategy: Strategy, rank: int) -> dict[str, Array]:
    """Return one rank's views of full arrays; single values (counters) are on every rank.

    Raise InputError if weights and strategy list different tensors, or one does not divide.
    """
    shapes = {name: array.shape for name, array in full.items()}
    strategy.check_names(shapes)
    return {name: np.asarray(full[name][box]) for name, box in strategy.boxes(shapes, rank).items()}


def write_rank(tensors: Mapping[str, Array], file: Path, dtype: Dtype | None) -> None:
    """Write arrays as one safetensors file; floating ones are cast to `dtype` (None: not cast).

    Raises:
        InputError: the disk is full, or a number is too large for `dtype`.
    """
    codes = {name: _CODE_OF[array.dtype.name] for name, array in tensors.items()}
    stored = {name: storage_code(code, dtype) for name, code in codes.items()}
    listed = [(name, stored[name], array.shape) for name, array in tensors.items()]
    with closing(OutputFile(file, listed)) as output:
        check_space([output])
        for name, array in tensors.items():
            data = np.ascontiguousarray(array, array.dtype.newbyteorder("<"))
            raw = data.reshape(-1).view(np.dtype(f"<u{data.dtype.itemsize}"))
            try:
                raw = cast(raw, codes[name], stored[name])
            except CastOverflowError as error:
                where = f"{file}: {name}"
                raise InputError(where, f"{error.value:g}", error.rule, error.remedy) from error
            output.pwrite(memoryview(raw), output.offset(name))  # type: ignore[arg-type]
