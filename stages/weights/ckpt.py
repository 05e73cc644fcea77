"""MindSpore's older checkpoint format (.ckpt), laid out so that it can be written in place like safetensors.

A file is Checkpoint messages one after the other, each with one Value {tag, tensor {dims, tensor_type,
tensor_content}}. Tensors above 512 MiB stand in several values of the same tag, whose contents the
reader joins. Protobuf's wire format is simple enough here to write it without holding contents in memory.

Source: mindspore 2.7.0, train/serialization.py: _write_parameter_data, _load_into_param_dict;
ccsrc/utils/checkpoint.proto.
"""

import math
from collections.abc import Sequence

from stages.weights.dtypes import ITEM_BYTES

SLICE_BYTES = 512 * 2**20

TENSOR_TYPE = {
    "BOOL": "Bool", "U8": "UInt8", "I8": "Int8", "I16": "Int16", "U16": "UInt16", "F16": "Float16",
    "BF16": "BFloat16", "I32": "Int32", "U32": "UInt32", "F32": "Float32", "I64": "Int64", "U64": "UInt64",
    "F64": "Float64",
}  # fmt: skip

# Tags of the wire format: field number << 3 | type (0 varint, 2 length-delimited).
_VALUE, _TAG, _TENSOR, _DIMS, _TYPE, _CONTENT = b"\x0a", b"\x0a", b"\x12", b"\x08", b"\x12", b"\x1a"

Rows = tuple[int, int, int]
"""(first row, last row, byte offset in the file) of one contiguous part of a tensor."""


def build_ckpt(
    tensors: Sequence[tuple[str, str, Sequence[int]]],
) -> tuple[list[tuple[int, bytes]], list[list[Rows]], int]:
    """Lay tensors out one after the other.

    Args:
        tensors: (name, dtype code, shape) in the file's order.

    Returns:
        The pieces of protobuf framing as (offset, bytes), each tensor's parts, and the file's size.
    """
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
    return frames, regions, position


def _frame(name: str, dtype: str, shape: Sequence[int], content: int) -> bytes:
    """Return the bytes before a tensor's content, which ends its Checkpoint message."""
    # A scalar has dims [0] in this format.
    fields = b"".join(_DIMS + _varint(size) for size in (shape or (0,)))
    fields += _delimited(_TYPE, TENSOR_TYPE[dtype].encode()) + _CONTENT + _varint(content)
    tensor = _TENSOR + _varint(len(fields) + content) + fields
    value = _delimited(_TAG, name.encode()) + tensor
    return _VALUE + _varint(len(value) + content) + value


def _delimited(tag: bytes, content: bytes) -> bytes:
    return tag + _varint(len(content)) + content


def _varint(value: int) -> bytes:
    result = bytearray()
    while value > 0x7F:
        result.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*result, value])
