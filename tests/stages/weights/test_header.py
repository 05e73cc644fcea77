"""Damaged safetensors files are refused before use."""

import json
import struct

import pytest

from stages.base.errors import InputError
from stages.weights.header import read_header


def _file(path, header, data=b""):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)
    return path


def _entry(begin, end, shape, dtype="F32"):
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


def _single(begin=0, end=8, shape=(2,), dtype="F32"):
    return {"a": _entry(begin, end, list(shape), dtype)}


TWICE = json.dumps(_single(0, 4, (1,)))[:-1] + ", " + json.dumps(_single(4, 8, (1,)))[1:]
CASES = {
    "overlap": (_single() | {"b": _entry(4, 12, [2])}, 12),
    "gap": (_single() | {"b": _entry(12, 20, [2])}, 20),
    "truncated": (_single() | {"b": _entry(8, 16, [2])}, 15),
    "extra bytes": (_single(), 9),
    "wrong length": (_single(shape=(3,)), 8),
    "offsets reversed": (_single(8, 0), 8),
    "not utf-8": (b"{\xff", 0),
    "known to the library only": (_single(dtype="C64", shape=(1,)), 8),
    "duplicate": (TWICE.encode(), 8),
    "deep": (b"[" * 100_000, 0),
    "size overflow": (_single(0, 8, (2**62, 4)), 8),
}


@pytest.mark.parametrize("case", CASES)
def test_damaged(tmp_path, case):
    header, size = CASES[case]
    with pytest.raises(InputError, match=r"x\.safetensors"):
        read_header(_file(tmp_path / "x.safetensors", header, bytes(size)))


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("x.safetensors", b"1234567", "is not a complete safetensors file"),
        ("x.safetensors", struct.pack("<Q", 2**60) + b"{}", "is not a complete safetensors file"),
        ("x.safetensors", b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "Git LFS pointer"),
        *((name, b"", "is a pickle") for name in ("pytorch_model.bin", "consolidated.pth", "x.pt", "x.pkl")),
    ],
)
def test_not_safetensors(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match=message):
        read_header(tmp_path / name)
