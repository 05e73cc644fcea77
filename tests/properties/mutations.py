"""Ways to change a file: damaged bytes, well-formed JSON with unexpected values, or something else."""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

Mutation = Callable[[bytes, Random], bytes]

VALUES: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 3, 2**31, 2**53 + 1, 2**63, -(2**63), 10**30, 0.5, 1e308, float("nan"),
    float("inf"), "", "x", "0", "\ud800", "\x00", "../../etc/passwd", "/etc/passwd", "é" * 300,
    "[" * 50, [], {}, [None], [[]], [-1], ["a"], {"a": None}, {"": ""},
)  # fmt: skip
NUMBERS = (0, 1, 0x7F, 0xFF, 0x7FFFFFFF, 0xFFFFFFFF, 0x7FFFFFFFFFFFFFFF, 0xFFFFFFFFFFFFFFFF)
FILES = (
    b"", b"\n", b"null", b"[]", b"{}", b"0", b"\xff\xfe", b"version https://git-lfs.github.com/spec/v1\n",
    b"PK\x03\x04", b"[" * 100_000, b'{"a":' * 100_000, b"9" * 10_000,
)  # fmt: skip


def flip(data: bytes, source: Random) -> bytes:
    """Flip one to eight bits."""
    changed = bytearray(data)
    for _ in range(source.randint(1, 8)) if data else ():
        changed[source.randrange(len(data))] ^= 1 << source.randrange(8)
    return bytes(changed)


def cut(data: bytes, source: Random) -> bytes:
    """Remove the end."""
    return data[: source.randrange(len(data) + 1)]


def splice(data: bytes, source: Random) -> bytes:
    """Remove or repeat a part, or replace it by zeros or random bytes."""
    begin = source.randrange(len(data) + 1)
    part = data[begin : begin + source.choice((1, 2, 4, 8, 16, 100, 1000, len(data)))]
    new = source.choice((b"", part + part, bytes(len(part)), source.randbytes(8)))
    return data[:begin] + new + data[begin + len(part) :]


def number(data: bytes, source: Random) -> bytes:
    """Write an extreme length or offset."""
    width, form = source.choice(((1, "B"), (4, "<I"), (8, "<Q"), (4, ">I")))
    begin = source.choice((0, source.randrange(len(data) + 1)))
    value = struct.pack(form, source.choice(NUMBERS) & (1 << 8 * width) - 1)
    return data[:begin] + value + data[begin + width :]


def another_file(data: bytes, source: Random) -> bytes:
    """Return another file."""
    return source.choice((*FILES, b"\xef\xbb\xbf" + data, b"\n" + data))


def values(data: bytes, source: Random) -> bytes:
    """Change values or keys of JSON; in JSON Lines, those of one line."""
    content, lines = _loaded(data), [data]
    chosen = 0
    if content is None:
        lines = data.split(b"\n")
        chosen = source.randrange(len(lines))
        content = _loaded(lines[chosen])
    if content is None:
        return flip(data, source)
    for _ in range(source.randint(1, 3)):
        content = _changed(content, source)
    text = json.dumps(content, ensure_ascii=source.random() < 0.5).encode("utf-8", "surrogatepass")
    return b"\n".join([*lines[:chosen], text, *lines[chosen + 1 :]])


def header(data: bytes, source: Random) -> bytes:
    """Change the JSON header of a safetensors file, and its length."""
    if len(data) < 8:
        return flip(data, source)
    (length,) = struct.unpack("<Q", data[:8])
    text = values(data[8 : 8 + length], source) if length < len(data) else data[8:]
    return struct.pack("<Q", len(text)) + text + data[8 + length :]


BYTES: tuple[Mutation, ...] = (flip, cut, splice, splice, splice, number, another_file)
REPLACEMENTS = ("pipe", "directory", "dangling link", "link to itself", "missing", "empty", "nested", "zeros")


def replace(file: Path, replacement: str) -> None:
    """Put something else in a file's place."""
    size = file.stat().st_size
    file.unlink()
    if replacement == "pipe":
        os.mkfifo(file)
    elif replacement == "directory":
        file.mkdir()
    elif "link" in replacement:
        os.symlink("nowhere" if replacement == "dangling link" else file.name, file)
    elif replacement != "missing":
        file.write_bytes({"empty": b"", "nested": b"[" * 100_000, "zeros": bytes(size)}[replacement])


def _loaded(data: bytes) -> Any:
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return None


def _changed(content: Any, source: Random) -> Any:
    """Return a copy with one value or key changed."""
    if not isinstance(content, (dict, list)) or not content or source.random() < 0.1:
        return source.choice(VALUES)
    if isinstance(content, list):
        index = source.randrange(len(content))
        return [*content[:index], _changed(content[index], source), *content[index + 1 :]]
    key = source.choice(list(content))
    chance = source.random()
    if chance < 0.25:
        renamed = {} if chance < 0.15 else {source.choice(("", "x", "../x", key + key)): content[key]}
        return {name: value for name, value in content.items() if name != key} | renamed
    return {**content, key: _changed(content[key], source)}
