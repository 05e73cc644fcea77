"""Protobuf's wire format, as far as MindSpore's checkpoint and strategy files use it.

Not the protobuf package, because a checkpoint's contents must stay on disk, and because `import mindspore`
fails after another package has loaded protobuf's compiled implementation.

Source: https://protobuf.dev/programming-guides/encoding
"""

from collections import defaultdict
from collections.abc import Callable, Collection

Read = Callable[[int, int], bytes]
"""Return up to `count` bytes from a position: read(position, count)."""
Numbers = defaultdict[int, list[int]]
"""Numbers of a message, by field number."""
Messages = defaultdict[int, list[range]]
"""Positions of its texts and inner messages, by field number."""
_VARINT, _BYTES = 0, 2
_WORD = 2**64


def encode_varint(value: int) -> bytes:
    """Encode a number; negative ones as 64-bit two's complement."""
    value %= _WORD
    result = bytearray()
    while value > 0x7F:
        result.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*result, value])


def encode_field(number: int, value: int | bytes) -> bytes:
    """Encode a field with a number, or with a text or message that is encoded already."""
    if isinstance(value, int):
        return encode_varint(number << 3 | _VARINT) + encode_varint(value)
    return encode_length(number, len(value)) + value


def encode_length(number: int, length: int) -> bytes:
    """Encode the beginning of a field of `length` bytes that follow."""
    return encode_varint(number << 3 | _BYTES) + encode_varint(length)


def decode(
    read: Read, message: range, numbers: Collection[int] | None = None, texts: Collection[int] | None = None
) -> tuple[Numbers, Messages]:
    """Return a message's signed numbers, and the positions of its texts and inner messages.

    Args:
        read: reads the file.
        message: positions of its bytes.
        numbers: fields that may be numbers; None: all.
        texts: fields that may be texts or messages; None: all.

    Raise ValueError if the bytes are not a message of such fields.
    """
    result: tuple[Numbers, Messages] = defaultdict(list), defaultdict(list)
    position = message.start
    while position < message.stop:
        key, after = _decode_varint(read, position)
        value, after = _decode_varint(read, after)
        number, kind = key >> 3, key & 7
        if kind not in (_VARINT, _BYTES):
            raise ValueError(f"wire type {kind} at byte {position} is not known")
        known = texts if kind == _BYTES else numbers
        if known is not None and number not in known:
            raise ValueError(f"field {number} at byte {position} is not known")
        if kind == _BYTES:
            result[1][number].append(range(after, after + value))
            after += value
        else:
            result[0][number].append(value - _WORD * (value >= _WORD // 2))
        if after > message.stop:
            rule = f"ends at byte {after}, beyond byte {message.stop}"
            raise ValueError(f"the field at byte {position} {rule}")
        position = after
    return result


def _decode_varint(read: Read, position: int) -> tuple[int, int]:
    """Return (unsigned number, position after it)."""
    value = 0
    for index, byte in enumerate(read(position, 10)):
        value |= (byte & 0x7F) << 7 * index
        if byte < 0x80:
            return value % _WORD, position + index + 1
    raise ValueError(f"the number at byte {position} does not end")
