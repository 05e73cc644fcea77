"""MindSpore's older checkpoint format (.ckpt), written in place and read without loading contents.

A file is a sequence of Checkpoint messages, each with one Value {tag = 1, tensor = 2 {dims = 1 (repeated),
tensor_type = 2, tensor_content = 3}}. Tensors above 512 MiB are divided into several values with the same
tag, whose contents the reader joins. A scalar has dims [0].

Source: mindspore 2.7.0, train/serialization.py: _write_parameter_data, _parse_ckpt_proto,
_load_into_param_dict; ccsrc/utils/checkpoint.proto.
"""

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from stages.base.errors import InputError
from stages.base.files import open_regular
from stages.weights.dtypes import ITEM_BYTES
from stages.weights.header import FileLayout, Rows, StoredTensor
from stages.weights.wire import Read, decode, encode_field, encode_length

SLICE_BYTES = 512 * 2**20

TENSOR_TYPE = {
    "BOOL": "Bool", "U8": "UInt8", "I8": "Int8", "I16": "Int16", "U16": "UInt16", "F16": "Float16",
    "BF16": "BFloat16", "I32": "Int32", "U32": "UInt32", "F32": "Float32", "I64": "Int64", "U64": "UInt64",
    "F64": "Float64",
}  # fmt: skip
_CODE = {name: code for code, name in TENSOR_TYPE.items()}
_CRC = b"crc_num"
_CRC_BYTES = len(_CRC) + 10
"""Bytes that save_checkpoint(crc_check=True) appends."""


def build_ckpt(tensors: Sequence[tuple[str, str, Sequence[int]]]) -> FileLayout:
    """Lay tensors (name, dtype code, shape) out one after the other."""
    frames: list[tuple[int, bytes]] = []
    regions: list[list[Rows]] = []
    position = 0
    for name, dtype, shape in tensors:
        rows = shape[0] if shape else 1
        row_bytes = math.prod(shape[1:]) * ITEM_BYTES[dtype]
        step = max(1, SLICE_BYTES // max(1, row_bytes))
        parts: list[Rows] = []
        for first in range(0, max(rows, 1), step):
            last = min(first + step, rows)
            frame = _frame(name, dtype, shape, (last - first) * row_bytes)
            frames.append((position, frame))
            position += len(frame)
            parts.append((first, last, position))
            position += (last - first) * row_bytes
        regions.append(parts)
    return FileLayout(frames, regions, position)


def _frame(name: str, dtype: str, shape: Sequence[int], content: int) -> bytes:
    """Return the bytes before a tensor's content, which ends its Checkpoint message."""
    fields = b"".join(encode_field(1, size) for size in (shape or (0,)))
    fields += encode_field(2, TENSOR_TYPE[dtype].encode()) + encode_length(3, content)
    value = encode_field(1, name.encode()) + encode_length(2, len(fields) + content) + fields
    return encode_length(1, len(value) + content) + value


@dataclass(frozen=True)
class _Value:
    """One Value message: a tensor or a part of one."""

    tag: str
    dims: list[int]
    tensor_type: str
    content: range
    """Positions of its bytes in the file."""


def read_ckpt(file: Path) -> dict[str, StoredTensor]:
    """Return the tensors of a .ckpt file; only the framing around the contents is read.

    Raise InputError if it is truncated or encrypted, has an unknown type, or lengths disagree.
    """
    try:
        with open_regular(file) as stream:
            descriptor, size = stream.fileno(), os.fstat(stream.fileno()).st_size
            values = _values(lambda position, count: os.pread(descriptor, count, position), size)
    except OSError as error:
        raise InputError(file, None, f"cannot be read: {error.strerror}", "give a .ckpt file") from None
    except ValueError as error:
        rule = f"is not a complete .ckpt file: {error}"
        raise InputError(file, f"{size} bytes", rule, "save it again, not encrypted") from None
    parts: dict[str, list[_Value]] = {}
    for value in values:
        parts.setdefault(value.tag, []).append(value)
    return {name: _tensor(name, entry, file) for name, entry in parts.items()}


def _values(read: Read, size: int) -> list[_Value]:
    """Decode the framing of a file of `size` bytes. Raise ValueError if it is not that of a checkpoint."""
    if size > _CRC_BYTES and read(size - _CRC_BYTES, len(_CRC)) == _CRC:
        size -= _CRC_BYTES
    messages = decode(read, range(size), (), (1,))[1][1]
    if not messages:
        raise ValueError("it holds no tensor")
    return [_value(read, message) for message in messages]


def _value(read: Read, message: range) -> _Value:
    value = decode(read, message, (), (1, 2))[1]
    if not value[1] or not value[2]:
        raise ValueError("a value has no name or no tensor")
    numbers, tensor = decode(read, value[2][-1], (1,), (2, 3))
    tag, kind = (
        b"".join(read(text.start, len(text)) for text in texts[-1:]) for texts in (value[1], tensor[2])
    )
    if not tag or not kind:
        raise ValueError("a value has no name or no type")
    return _Value(tag.decode(), numbers[1], kind.decode(), (tensor[3] or [range(0)])[-1])


def _tensor(name: str, values: list[_Value], file: Path) -> StoredTensor:
    where, first, remedy = f"{file}: {name}", values[0], "save the checkpoint again"
    dtype = _CODE.get(first.tensor_type)
    if dtype is None:
        known = ", ".join(_CODE)
        raise InputError(where, first.tensor_type, f"unknown tensor type; known: {known}", remedy)
    extents = tuple((value.content.start, len(value.content)) for value in values)
    stored = sum(length for _, length in extents)
    shape = () if first.dims == [0] and stored == ITEM_BYTES[dtype] else tuple(first.dims)
    if any((value.dims, value.tensor_type) != (first.dims, first.tensor_type) for value in values):
        raise InputError(where, None, "its parts differ in shape or type", remedy)
    expected = math.prod(shape) * ITEM_BYTES[dtype]
    if stored != expected or any(size < 0 for size in shape):
        rule = f"{first.tensor_type} {list(shape)} takes {expected} bytes, its parts hold {stored}"
        raise InputError(where, None, rule, remedy)
    return StoredTensor(name, dtype, shape, file, extents[0][0], extents if len(extents) > 1 else ())
