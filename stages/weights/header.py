"""The header of a safetensors file: read with every check that protects what reads the data, or built.

Format: 8 bytes little-endian length N, N bytes of JSON {name: {dtype, shape, data_offsets}}, data.
Source: https://github.com/huggingface/safetensors (README, "Format"); safetensors 0.7.0, tensor.rs.
"""

import json
import math
import os
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stages.base.errors import InputError
from stages.base.files import open_regular
from stages.weights.dtypes import ITEM_BYTES

_MAX_HEADER_BYTES = 100_000_000  # the format's own limit


@dataclass(frozen=True)
class StoredTensor:
    """A tensor's place in one file."""

    name: str
    dtype: str
    """safetensors code: F32, BF16, …"""
    shape: tuple[int, ...]
    file: Path
    offset: int
    """First byte, from the start of the file."""
    extents: tuple[tuple[int, int], ...] = ()
    """(first byte, bytes) of each part when the data does not lie in one piece, as in large .ckpt tensors."""

    @property
    def nbytes(self) -> int:
        """Bytes of data."""
        return math.prod(self.shape) * ITEM_BYTES[self.dtype]


@dataclass(frozen=True)
class Header:
    """Content of one safetensors file."""

    file: Path
    tensors: Mapping[str, StoredTensor]
    """Tensors in the header's order."""
    metadata: Mapping[str, str]


def read_header(file: Path) -> Header:
    """Read and check one file's header.

    Raises:
        InputError: naming file and tensor: not safetensors, truncated, duplicate name, unknown dtype,
            wrong length, overlap, gap.
    """
    if file.suffix in (".bin", ".pt", ".pth", ".pkl"):
        remedy = "save it as safetensors: AutoModelForCausalLM.from_pretrained(…).save_pretrained(…)"
        raise InputError(file, None, "is a pickle, which can run code when it is read; refused", remedy)
    try:
        with open_regular(file) as stream:
            size = os.fstat(stream.fileno()).st_size
            text = _header_bytes(stream.read(8), stream, size, file)
    except OSError as error:
        raise InputError(file, None, f"cannot be read: {error.strerror}", "give a safetensors file") from None
    values = _json(text, file)
    metadata = values.pop("__metadata__", {})
    if not isinstance(metadata, dict):
        raise InputError(file, metadata, "__metadata__ must be a mapping of texts", "download the file again")
    start = 8 + len(text)
    tensors = {name: _tensor(name, entry, file, start) for name, entry in values.items()}
    _check_cover(tensors.values(), start, size, file)
    return Header(file, tensors, metadata)


def build_header(
    tensors: Sequence[tuple[str, str, Sequence[int]]], metadata: Mapping[str, str] | None = None
) -> tuple[bytes, list[int], int]:
    """Lay tensors out one after the other.

    Args:
        tensors: (name, dtype code, shape) in the file's order.
        metadata: texts for __metadata__; None leaves it out.

    Returns:
        The file's first bytes, each tensor's offset from the start of the file, and the file's size.
    """
    header: dict[str, Any] = {} if metadata is None else {"__metadata__": dict(metadata)}
    begins, position = [], 0
    for name, dtype, shape in tensors:
        end = position + math.prod(shape) * ITEM_BYTES[dtype]
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [position, end]}
        begins.append(position)
        position = end
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)  # keeps the data aligned for readers that map it
    first = struct.pack("<Q", len(text)) + text
    return first, [len(first) + begin for begin in begins], len(first) + position


def _header_bytes(length_bytes: bytes, stream: Any, size: int, file: Path) -> bytes:
    if length_bytes == b"version ":
        raise InputError(
            file, None, "is a Git LFS pointer, not the weights", "run `git lfs pull` in its directory"
        )
    if len(length_bytes) < 8:
        rule = "is not a safetensors file: shorter than its length field"
        raise InputError(file, f"{size} bytes", rule, "download it again")
    (length,) = struct.unpack("<Q", length_bytes)
    if length > _MAX_HEADER_BYTES:
        rule = "is not a safetensors file: its header length is impossible"
        raise InputError(file, length, rule, "give a safetensors file")
    if 8 + length > size:
        raise InputError(
            file, f"{size} bytes", f"is truncated within its header of {length} bytes", "download it again"
        )
    return bytes(stream.read(length))


def _json(text: bytes, file: Path) -> dict[str, Any]:
    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        result = dict(pairs)
        if len(result) < len(pairs):
            names = [name for name, _ in pairs]
            twice = next(name for name in names if names.count(name) > 1)
            raise InputError(file, twice, "this name stands twice in the header", "write the file again")
        return result

    try:
        values = json.loads(text, object_pairs_hook=unique)
    except (ValueError, RecursionError) as error:
        raise InputError(
            file, None, f"is not a safetensors file: its header is not JSON ({error})", "download it again"
        ) from None
    if not isinstance(values, dict):
        raise InputError(
            file, None, "is not a safetensors file: its header is not a mapping", "download it again"
        )
    return values


def _tensor(name: str, entry: Any, file: Path, start: int) -> StoredTensor:
    where = f"{file}: {name}"
    if not isinstance(entry, dict) or not {"dtype", "shape", "data_offsets"} <= entry.keys():
        raise InputError(where, entry, "must have dtype, shape and data_offsets", "download the file again")
    dtype, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    if not isinstance(dtype, str) or dtype not in ITEM_BYTES:
        rule = f"unknown dtype; known: {', '.join(ITEM_BYTES)}"
        raise InputError(where, dtype, rule, "convert the weights to a known dtype")
    if not _naturals(shape):
        raise InputError(
            where, shape, "shape must be a list of non-negative whole numbers", "download the file again"
        )
    if not _naturals(offsets) or len(offsets) != 2 or offsets[0] > offsets[1]:
        raise InputError(where, offsets, "data_offsets must be [begin, end]", "download the file again")
    tensor = StoredTensor(name, dtype, tuple(shape), file, start + offsets[0])
    if offsets[1] - offsets[0] != tensor.nbytes:
        rule = f"{dtype} {shape} takes {tensor.nbytes} bytes, data_offsets are {offsets}"
        raise InputError(where, None, rule, "download the file again")
    return tensor


def _naturals(values: Any) -> bool:
    return isinstance(values, list) and all(type(value) is int and value >= 0 for value in values)


def _check_cover(tensors: Any, start: int, size: int, file: Path) -> None:
    """Check that the tensors cover the data once, without overlaps, gaps or missing bytes."""
    position, last = start, "the header"
    for tensor in sorted(tensors, key=lambda stored: (stored.offset, stored.nbytes)):
        if tensor.offset != position:
            what = "overlaps" if tensor.offset < position else "leaves a gap after"
            raise InputError(
                f"{file}: {tensor.name}", None, f"its data {what} {last}", "download the file again"
            )
        position, last = tensor.offset + tensor.nbytes, tensor.name
        if position > size:
            rule = f"is truncated: this tensor ends at byte {position}, the file at {size}"
            raise InputError(f"{file}: {tensor.name}", None, rule, "download the file again")
    if position != size:
        rule = f"has {size - position} bytes that belong to no tensor"
        raise InputError(file, f"{size} bytes", rule, "download it again")
