"""The header of a safetensors file: read and checked by the safetensors library, or built.

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

from safetensors import SafetensorError, safe_open

from stages.base.errors import InputError
from stages.base.files import open_regular
from stages.weights.dtypes import ITEM_BYTES


@dataclass(frozen=True)
class StoredTensor:
    """Position of a tensor in one file."""

    name: str
    dtype: str
    """safetensors code: F32, BF16, …"""
    shape: tuple[int, ...]
    file: Path
    offset: int
    """First byte, from the start of the file."""
    extents: tuple[tuple[int, int], ...] = ()
    """(first byte, bytes) of each part if the data is not in one piece, as in large .ckpt tensors."""

    @property
    def nbytes(self) -> int:
        """Bytes of data."""
        return math.prod(self.shape) * ITEM_BYTES[self.dtype]


@dataclass(frozen=True)
class Header:
    """Content of one safetensors file."""

    tensors: Mapping[str, StoredTensor]
    """Tensors in the order of their data."""
    metadata: Mapping[str, str]


def read_header(file: Path) -> Header:
    """Read and check one file's header.

    Raise InputError if the file is not safetensors, or its tensors do not cover its data exactly once.
    """
    if file.suffix in (".bin", ".pt", ".pth", ".pkl"):
        remedy = "save it as safetensors: AutoModelForCausalLM.from_pretrained(…).save_pretrained(…)"
        raise InputError(file, None, "is a pickle, which can run code when it is read; refused", remedy)
    try:
        with open_regular(file) as stream:
            size, begin = os.fstat(stream.fileno()).st_size, stream.read(8)
    except OSError as error:
        raise InputError(file, None, f"cannot be read: {error.strerror}", "give a safetensors file") from None
    if begin == b"version ":
        rule = "is a Git LFS pointer, not the weights"
        raise InputError(file, None, rule, "run `git lfs pull` in its directory")
    try:
        with safe_open(file, framework="numpy") as content:  # type: ignore[no-untyped-call]
            metadata = content.metadata() or {}
            listed = {name: content.get_slice(name) for name in content.offset_keys()}
            described = {name: (part.get_dtype(), tuple(part.get_shape())) for name, part in listed.items()}
    except (SafetensorError, OSError) as error:
        rule = f"is not a complete safetensors file: {error}"
        raise InputError(file, f"{size} bytes", rule, "download it again") from None
    tensors = {}
    offset = 8 + struct.unpack("<Q", begin)[0]
    for name, (dtype, shape) in described.items():
        if dtype not in ITEM_BYTES:
            rule = f"unknown dtype; known: {', '.join(ITEM_BYTES)}"
            raise InputError(f"{file}: {name}", dtype, rule, "convert the weights to a known dtype")
        tensors[name] = StoredTensor(name, dtype, shape, file, offset)
        offset += tensors[name].nbytes
    return Header(tensors, metadata)


Rows = tuple[int, int, int]
"""(first row, last row, byte offset in the file) of one contiguous part of a tensor."""


@dataclass(frozen=True)
class FileLayout:
    """Positions in a weight file that is to be written."""

    frames: Sequence[tuple[int, bytes]]
    """(offset, bytes) of all that is no tensor's data."""
    regions: Sequence[Sequence[Rows]]
    """Parts of each tensor."""
    size: int


def build_header(
    tensors: Sequence[tuple[str, str, Sequence[int]]], metadata: Mapping[str, str] | None = None
) -> FileLayout:
    """Lay tensors (name, dtype code, shape) out one after the other."""
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
    rows = [shape[0] if shape else 1 for _, _, shape in tensors]
    regions = [[(0, count, len(first) + begin)] for count, begin in zip(rows, begins, strict=True)]
    return FileLayout([(0, first)], regions, len(first) + position)
