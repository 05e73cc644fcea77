"""Ways in which a file is not what it was: cut, flipped, or well-formed and wrong."""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

Mutation = Callable[[bytes, Random], bytes]

ODD: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 3, 2**31, 2**53 + 1, 2**63, -(2**63), 10**30, 0.5, 1e308, float("nan"),
    float("inf"), "", "x", "0", "\ud800", "\x00", "../../etc/passwd", "/etc/passwd", "é" * 300,
    "[" * 50, [], {}, [None], [[]], [-1], ["a"], {"a": None}, {"": ""},
)  # fmt: skip
NUMBERS = (0, 1, 0x7F, 0xFF, 0x7FFFFFFF, 0xFFFFFFFF, 0x7FFFFFFFFFFFFFFF, 0xFFFFFFFFFFFFFFFF)


def _span(data: bytes, source: Random) -> tuple[int, int]:
    begin = source.randrange(len(data) + 1)
    return begin, min(len(data), begin + source.choice((1, 2, 4, 8, 16, 100, 1000, len(data))))


def flip(data: bytes, source: Random) -> bytes:
    """One to eight bits."""
    changed = bytearray(data)
    for _ in range(source.randint(1, 8)) if data else ():
        changed[source.randrange(len(data))] ^= 1 << source.randrange(8)
    return bytes(changed)


def cut(data: bytes, source: Random) -> bytes:
    """The end is missing."""
    return data[: source.randrange(len(data) + 1)]


def remove(data: bytes, source: Random) -> bytes:
    """Something in between is missing."""
    begin, end = _span(data, source)
    return data[:begin] + data[end:]


def double(data: bytes, source: Random) -> bytes:
    """Something stands there twice."""
    begin, end = _span(data, source)
    return data[:end] + data[begin:]


def blank(data: bytes, source: Random) -> bytes:
    """Zeros, as a crash of the machine leaves them."""
    begin, end = _span(data, source)
    return data[:begin] + bytes(end - begin) + data[end:]


def noise(data: bytes, source: Random) -> bytes:
    """Random bytes put in."""
    begin = source.randrange(len(data) + 1)
    return data[:begin] + source.randbytes(source.choice((1, 2, 8, 64))) + data[begin:]


def number(data: bytes, source: Random) -> bytes:
    """A length or offset that is extreme."""
    width, form = source.choice(((1, "B"), (4, "<I"), (8, "<Q"), (4, ">I")))
    begin = source.choice((0, source.randrange(len(data) + 1)))
    value = struct.pack(form, source.choice(NUMBERS) & (1 << 8 * width) - 1)
    return data[:begin] + value + data[begin + width :]


def nothing(data: bytes, source: Random) -> bytes:
    """Another file altogether."""
    lfs = b"version https://git-lfs.github.com/spec/v1\n"
    deep = (b"[" * 100_000, b'{"a":' * 100_000, b"9" * 10_000)
    plain = (b"", b"\n", b"null", b"[]", b"{}", b"0", b"\xff\xfe", lfs, b"PK\x03\x04")
    return source.choice((*plain, *deep, b"\xef\xbb\xbf" + data, b"\n" + data))


def values(data: bytes, source: Random) -> bytes:
    """JSON that is well-formed, with a value or key that nobody expects; of JSON lines, one line."""
    lines = data.split(b"\n")
    chosen = source.randrange(len(lines))
    whole = _loaded(data)
    content = _loaded(lines[chosen]) if whole is None else whole
    if content is None:
        return flip(data, source)
    for _ in range(source.randint(1, 3)):
        content = _changed(content, source)
    text = json.dumps(content, ensure_ascii=source.random() < 0.5).encode("utf-8", "surrogatepass")
    return text if whole is not None else b"\n".join([*lines[:chosen], text, *lines[chosen + 1 :]])


def _loaded(data: bytes) -> Any:
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return None


def _changed(content: Any, source: Random) -> Any:
    """A copy with one place changed."""
    if not isinstance(content, (dict, list)) or not content or source.random() < 0.1:
        return source.choice(ODD)
    if isinstance(content, list):
        place = source.randrange(len(content))
        return [*content[:place], _changed(content[place], source), *content[place + 1 :]]
    key = source.choice(list(content))
    way = source.random()
    rest = {name: value for name, value in content.items() if name != key}
    if way < 0.15:
        return rest
    if way < 0.25:
        return {**rest, source.choice(("", "x", "../x", key + key)): content[key]}
    return {**content, key: _changed(content[key], source)}


def header(data: bytes, source: Random) -> bytes:
    """The JSON at the head of a safetensors file, changed, with a length that fits it."""
    if len(data) < 8:
        return flip(data, source)
    (length,) = struct.unpack("<Q", data[:8])
    text = values(data[8 : 8 + length], source) if length < len(data) else data[8:]
    return struct.pack("<Q", len(text)) + text + data[8 + length :]


BYTES: tuple[Mutation, ...] = (flip, cut, remove, double, blank, noise, number, nothing)


REPLACEMENTS = ("pipe", "directory", "dangling link", "link to itself", "missing", "empty", "nested", "zeros")


def replace(file: Path, way: str) -> None:
    """Put something else in a file's place."""
    size = file.stat().st_size
    file.unlink()
    if way == "pipe":
        os.mkfifo(file)
    elif way == "directory":
        file.mkdir()
    elif way.endswith("link") or way.startswith("link"):
        os.symlink("nowhere" if way == "dangling link" else file.name, file)
    elif way != "missing":
        file.write_bytes({"empty": b"", "nested": b"[" * 100_000, "zeros": bytes(size)}[way])


def put(file: Path, kinds: tuple[Mutation, ...], source: Random) -> str:
    """Change `file`, or what stands in its place; what was done."""
    if source.random() < 0.06:
        way = source.choice(REPLACEMENTS)
        replace(file, way)
        return way
    data = file.read_bytes()
    done = []
    for _ in range(source.choice((1, 1, 1, 2, 3))):
        kind = source.choice(kinds)
        data = kind(data, source)
        done.append(kind.__name__)
    file.write_bytes(data)
    return ", ".join(done)
