"""Moving tensors from the pieces they lie in to the regions they should lie in.

Split, merge, reshard, convert and export are all this: a full tensor is read some rows at a time
(gathered from its pieces), and each destination gets its part of those rows. Memory is bounded by
threads × a few chunks whatever the model's size; every source byte is read once.
"""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from stages.base.context import Progress
from stages.base.errors import InputError
from stages.models.tensor_layout import slice_shape
from stages.weights.dtypes import ITEM_BYTES, Array, CastOverflowError, cast, decode, raw_dtype
from stages.weights.header import StoredTensor
from stages.weights.outputs import Target
from stages.weights.sources import Piece, Tensor

THREADS = min(4, os.cpu_count() or 1)
"""Chunks in flight; more do not make a disk faster."""
CHUNK_BYTES = 4 * 2**20  # of one tensor's rows; larger chunks leave the processor's cache


@dataclass(frozen=True)
class Move:
    """One full tensor and where its parts go."""

    tensor: Tensor
    targets: tuple[Target, ...]
    dtype: str
    """safetensors code of the targets; floating types are cast."""


def transfer(moves: Sequence[Move], progress: Progress | None = None) -> None:
    """Carry out all moves; `progress` is called from any thread, never concurrently.

    Raises:
        InputError: a source file ended early, the disk is full, or a number is too large for its new type.
    """
    chunks = _chunks(moves)
    lock = threading.Lock()
    stopped = threading.Event()
    sizes = [(slice_shape(target.box), ITEM_BYTES[move.dtype]) for move in moves for target in move.targets]
    done, total = 0, sum(math.prod(shape) * item for shape, item in sizes)

    def next_chunk() -> tuple[Move, int, int] | None:
        with lock:
            return None if stopped.is_set() else next(chunks, None)

    def work() -> None:
        nonlocal done
        with _Reader() as reader:
            while (chunk := next_chunk()) is not None:
                written = _carry(*chunk, reader)
                with lock:
                    done += written
                    if progress is not None:
                        progress(done, total)

    with ThreadPoolExecutor(THREADS) as pool:  # waits for all threads: none may write to closed files
        try:
            for future in as_completed([pool.submit(work) for _ in range(THREADS)]):
                future.result()
        finally:
            stopped.set()  # after an error or Ctrl-C, too


def read_tensor(tensor: Tensor) -> Array:
    """Read a complete tensor into memory in its stored shape; floats become float32."""
    raw = np.empty(tensor.shape, raw_dtype(tensor.dtype))
    with _Reader() as reader:
        _gather(tensor, 0, tensor.shape[0], raw, reader)
    return decode(raw, tensor.dtype).reshape(() if tensor.scalar else tensor.shape)


def same_data(first: StoredTensor, second: StoredTensor) -> bool:
    """Return True if two tensors on disk have the same dtype, shape and bytes."""
    if (first.dtype, first.shape) != (second.dtype, second.shape):
        return False
    with _Reader() as reader:
        for start in range(0, first.nbytes, CHUNK_BYTES):
            chunks = [np.empty(min(CHUNK_BYTES, first.nbytes - start), np.uint8) for _ in range(2)]
            for stored, chunk in zip((first, second), chunks, strict=True):
                reader.read(stored, start, chunk)
            if not np.array_equal(chunks[0], chunks[1]):
                return False
    return True


class _Reader:
    """Open source files of one thread, and its buffers: fresh ones would fault in their pages each time."""

    def __init__(self) -> None:
        self._open: dict[Path, int] = {}
        self._buffers: dict[str, Array] = {}

    def read(self, stored: StoredTensor, start: int, into: Array) -> None:
        """Fill the contiguous array `into` from byte `start` of the tensor's data."""
        if stored.file not in self._open:
            self._open[stored.file] = os.open(stored.file, os.O_RDONLY)
        view = _bytes(into)
        for offset, length in stored.extents or ((stored.offset, stored.nbytes),):
            if start >= length:
                start -= length
                continue
            part = view[: length - start]
            self._fill(stored, offset + start, part)
            view, start = view[len(part) :], 0

    def _fill(self, stored: StoredTensor, offset: int, view: memoryview) -> None:
        while view:
            count = os.preadv(self._open[stored.file], [view], offset)
            if count == 0:
                remedy = "let nothing change it meanwhile"
                raise InputError(f"{stored.file}: {stored.name}", None, "ended while being read", remedy)
            view, offset = view[count:], offset + count

    def __enter__(self) -> _Reader:
        return self

    def __exit__(self, *_: object) -> None:
        for descriptor in self._open.values():
            os.close(descriptor)

    def array(self, use: str, shape: Sequence[int], dtype: np.dtype[Any]) -> Array:
        """Return an uninitialised contiguous array; the next call with the same `use` overwrites it."""
        count = math.prod(shape) * dtype.itemsize
        buffer = self._buffers.get(use)
        if buffer is None or buffer.size < count:
            buffer = self._buffers[use] = np.empty(count, np.uint8)
        return buffer[:count].view(dtype).reshape(shape)


def _chunks(moves: Iterable[Move]) -> Iterator[tuple[Move, int, int]]:
    """Yield (move, first row, last row) in chunks of about CHUNK_BYTES."""
    for move in moves:
        shape = move.tensor.shape
        row_bytes = max(1, math.prod(shape[1:]) * ITEM_BYTES[move.tensor.dtype])
        step = max(1, CHUNK_BYTES // row_bytes)
        for first in range(0, shape[0], step):
            last = min(first + step, shape[0])
            if any(target.box[0].start < last and target.box[0].stop > first for target in move.targets):
                yield move, first, last


def _carry(move: Move, first: int, last: int, reader: _Reader) -> int:
    """Move rows first:last of one tensor; return the bytes written."""
    tensor = move.tensor
    rows = reader.array("rows", (last - first, *tensor.shape[1:]), raw_dtype(tensor.dtype))
    _gather(tensor, first, last, rows, reader)
    try:
        rows = cast(rows, tensor.dtype, move.dtype)
    except CastOverflowError as error:
        at = [int(i) for i in np.unravel_index(error.index, rows.shape)]
        stored = _piece_at(tensor, [first + at[0], *at[1:]]).stored
        where = f"{stored.file}: {stored.name}"
        raise InputError(where, f"{error.value:g}", error.rule, error.remedy) from error
    written = 0
    for target in move.targets:
        span = _rows_within(target.box[0], first, last)
        if span is None:
            continue
        skipped, count, target_rows = span
        region = (target_rows, *target.box[1:])
        part = rows[region]
        if not part.flags.c_contiguous:
            packed = reader.array("part", part.shape, part.dtype)
            np.copyto(packed, part)
            part = packed
        target.file.pwrite(_bytes(part), target.offset + skipped * (part.nbytes // count))
        written += part.nbytes
    return written


def _piece_at(tensor: Tensor, position: Sequence[int]) -> Piece:
    """Return the piece that holds one element of the full tensor."""
    return next(
        piece
        for piece in tensor.pieces
        if all(
            i in range(box.start, box.stop, box.step or 1) for i, box in zip(position, piece.box, strict=True)
        )
    )


def _bytes(array: Array) -> memoryview:
    """Return a contiguous array's memory."""
    return memoryview(array.reshape(-1).view(np.uint8))  # type: ignore[arg-type]


def _gather(tensor: Tensor, first: int, last: int, rows: Array, reader: _Reader) -> None:
    """Fill `rows` (rows first:last of the full tensor) from the tensor's pieces."""
    for piece in tensor.pieces:
        span = _rows_within(piece.box[0], first, last)
        if span is None:
            continue
        source_row, count, target_rows = span
        inner = piece.stored.shape[1:]
        row_bytes = math.prod(inner) * rows.dtype.itemsize
        offset = (piece.row + source_row * piece.step) * row_bytes
        if target_rows.step == piece.step == 1 and inner == tensor.shape[1:]:
            reader.read(piece.stored, offset, rows[target_rows])
            continue
        part = reader.array("piece", ((count - 1) * piece.step + 1, *inner), rows.dtype)
        reader.read(piece.stored, offset, part)
        region = (target_rows, *piece.box[1:])
        rows[region] = part[:: piece.step]


def _rows_within(rows: slice, first: int, last: int) -> tuple[int, int, slice] | None:
    """Return which of a piece's rows fall into first:last: index of the first, count, rows from `first`."""
    step = rows.step or 1
    skipped = max(0, -(-(first - rows.start) // step))
    begin = rows.start + skipped * step
    end = min(last, rows.stop)
    if begin >= end:
        return None
    count = -(-(end - begin) // step)
    return skipped, count, slice(begin - first, begin - first + (count - 1) * step + 1, step)
