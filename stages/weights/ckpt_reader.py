"""Where the tensors of a MindSpore .ckpt file lie, without reading their contents.

Only the framing is read: a file of many gigabytes is opened in milliseconds and streamed afterwards.
The format is told in ckpt.py. An encrypted file, a map parameter or a checksum that does not belong to
the file is refused.

Source: mindspore 2.7.0, train/serialization.py: _parse_ckpt_proto, _load_into_param_dict;
ccsrc/utils/checkpoint.proto.
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass, field
from pathlib import Path

from stages.base.errors import InputError
from stages.base.files import open_regular
from stages.weights.ckpt import TENSOR_TYPE
from stages.weights.dtypes import ITEM_BYTES
from stages.weights.header import Header, StoredTensor

_CODE = {name: code for code, name in TENSOR_TYPE.items()}
_LENGTH_DELIMITED, _VARINT = 2, 0
_CRC = b"crc_num"
_CRC_BYTES = len(_CRC) + 10  # written by save_checkpoint(crc_check=True) behind the last message


@dataclass
class _Value:
    """One Value message: a tensor or a part of one."""

    tag: str = ""
    dims: list[int] = field(default_factory=list)
    tensor_type: str = ""
    content: tuple[int, int] = (0, 0)
    """First byte and length."""


def read_ckpt(file: Path) -> Header:
    """Find every tensor of a .ckpt file.

    Raises:
        InputError: naming file and tensor: truncated, encrypted, unknown type, lengths that disagree.
    """
    try:
        with _Framing(file) as framing:
            values = [framing.value(begin, end) for begin, end in framing.messages()]
    except OSError as error:
        raise InputError(file, None, f"cannot be read: {error.strerror}", "give a .ckpt file") from None
    parts: dict[str, list[_Value]] = {}
    for value in values:
        parts.setdefault(value.tag, []).append(value)
    return Header(file, {name: _tensor(name, entry, file) for name, entry in parts.items()}, {})


def _tensor(name: str, values: list[_Value], file: Path) -> StoredTensor:
    where, first = f"{file}: {name}", values[0]
    dtype = _CODE.get(first.tensor_type)
    if dtype is None:
        known = ", ".join(_CODE)
        raise InputError(where, first.tensor_type, f"unknown tensor type; known: {known}", "save it anew")
    extents = tuple(value.content for value in values)
    held = sum(length for _, length in extents)
    # A scalar has dims [0].
    shape = () if first.dims == [0] and held == ITEM_BYTES[dtype] else tuple(first.dims)
    if any((value.dims, value.tensor_type) != (first.dims, first.tensor_type) for value in values):
        raise InputError(where, None, "its parts differ in shape or type", "save the checkpoint anew")
    expected = math.prod(shape) * ITEM_BYTES[dtype]
    if held != expected:
        rule = f"{first.tensor_type} {list(shape)} takes {expected} bytes, its parts hold {held}"
        raise InputError(where, None, rule, "save the checkpoint anew")
    return StoredTensor(name, dtype, shape, file, extents[0][0], extents if len(extents) > 1 else ())


class _Framing:
    """Reads protobuf's wire format around the contents, never the contents."""

    def __init__(self, file: Path) -> None:
        self._file = file
        with open_regular(file) as stream:
            self._descriptor = os.dup(stream.fileno())
        self._size = os.fstat(self._descriptor).st_size

    def __enter__(self) -> _Framing:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._descriptor)

    def messages(self) -> list[tuple[int, int]]:
        """First and last byte of every Value."""
        parts, position = [], 0
        while position < self._size:
            if self._size - position == _CRC_BYTES and self._read(position, len(_CRC)) == _CRC:
                break
            number, begin, end = self._field(position, self._size)
            if number != 1:
                raise self._broken(position, f"field {number} where a value should begin")
            parts.append((begin, end))
            position = end
        if not parts:
            raise self._broken(0, "no tensor")
        return parts

    def value(self, begin: int, end: int) -> _Value:
        """One Value {tag = 1, tensor = 2}."""
        value = _Value()
        while begin < end:
            number, inner, last = self._field(begin, end)
            if number == 1:
                value.tag = self._text(inner, last)
            elif number == 2:
                self._fill(value, inner, last)
            else:
                raise self._broken(begin, f"field {number} of {value.tag or 'a value'} is no tensor")
            begin = last
        if not value.tag or not value.tensor_type:
            raise self._broken(begin, "a value without name or tensor")
        return value

    def _fill(self, value: _Value, begin: int, end: int) -> None:
        """TensorProto {dims = 1 (repeated varint), tensor_type = 2, tensor_content = 3}."""
        while begin < end:
            key, after = self._varint(begin)
            if key == 1 << 3 | _VARINT:
                size, begin = self._varint(after)
                value.dims.append(size)
                continue
            number, inner, last = self._field(begin, end)
            if number == 2:
                value.tensor_type = self._text(inner, last)
            elif number == 3:
                value.content = (inner, last - inner)
            else:
                raise self._broken(begin, f"field {number} of a tensor is not known")
            begin = last

    def _field(self, position: int, end: int) -> tuple[int, int, int]:
        """(field number, first byte, end) of a length-delimited field."""
        key, after = self._varint(position)
        if key & 7 != _LENGTH_DELIMITED:
            raise self._broken(position, f"wire type {key & 7} where a length should stand")
        length, begin = self._varint(after)
        if begin + length > end:
            raise self._broken(position, f"a field ends at byte {begin + length}, beyond byte {end}")
        return key >> 3, begin, begin + length

    def _varint(self, position: int) -> tuple[int, int]:
        """(value, position behind it)."""
        value = 0
        data = self._read(position, 10)
        for index, byte in enumerate(data):
            value |= (byte & 0x7F) << 7 * index
            if byte < 0x80:
                return value, position + index + 1
        raise self._broken(position, "a number does not end")

    def _text(self, begin: int, end: int) -> str:
        try:
            return self._read(begin, end - begin).decode()
        except UnicodeDecodeError:
            raise self._broken(begin, "a name is not UTF-8") from None

    def _read(self, position: int, count: int) -> bytes:
        return os.pread(self._descriptor, count, position)

    def _broken(self, position: int, what: str) -> InputError:
        rule = f"is not a whole .ckpt file: {what} (byte {position})"
        return InputError(self._file, f"{self._size} bytes", rule, "save it anew, not encrypted")
