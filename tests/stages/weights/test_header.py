"""Damaged safetensors files are refused before use."""

import json
import struct

import numpy as np
import pytest
import safetensors.numpy

from stages.base.errors import InputError
from stages.weights.header import build_header, read_header


def _file(path, header, data=b""):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)
    return path


def _entry(begin, end, shape, dtype="F32"):
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


def test_reads_what_the_library_writes(tmp_path):
    arrays = {
        "b": np.arange(6, dtype=np.float32).reshape(2, 3),
        "a": np.array(3, np.int64),
        "e": np.zeros((0, 2), np.uint8),
    }
    safetensors.numpy.save_file(arrays, tmp_path / "x.safetensors", {"format": "np"})
    header = read_header(tmp_path / "x.safetensors")
    content = (tmp_path / "x.safetensors").read_bytes()
    assert header.metadata == {"format": "np"}
    for name, array in arrays.items():
        stored = header.tensors[name]
        assert stored.shape == array.shape
        assert content[stored.offset : stored.offset + stored.nbytes] == array.tobytes()


def test_the_library_reads_what_is_built(tmp_path):
    first, offsets, size = build_header(
        [("x", "F32", (2,)), ("ü", "I64", ()), ("y", "BF16", (0, 3))], {"a": "b"}
    )
    data = bytearray(size)
    data[: len(first)] = first
    data[offsets[0] : offsets[0] + 8] = np.array([1, 2], "<f4").tobytes()
    data[offsets[1] : offsets[1] + 8] = np.array(7, "<i8").tobytes()
    read = dict(safetensors.deserialize(bytes(data)))
    assert offsets[0] % 8 == 0
    assert np.frombuffer(bytes(read["x"]["data"]), "<f4").tolist() == [1, 2]
    assert np.frombuffer(bytes(read["ü"]["data"]), "<i8").tolist() == [7]


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
    ("content", "message"),
    [
        (b"", "is not a complete safetensors file"),
        (b"1234567", "is not a complete safetensors file"),
        (struct.pack("<Q", 2**60) + b"{}", "is not a complete safetensors file"),
        (struct.pack("<Q", 100) + b"{}", "is not a complete safetensors file"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "Git LFS pointer"),
    ],
)
def test_not_safetensors(tmp_path, content, message):
    (tmp_path / "x.safetensors").write_bytes(content)
    with pytest.raises(InputError, match=message):
        read_header(tmp_path / "x.safetensors")


def test_missing_file_and_pickles(tmp_path):
    with pytest.raises(InputError, match="cannot be read"):
        read_header(tmp_path / "none.safetensors")
    for name in ("pytorch_model.bin", "consolidated.pth", "x.pt"):
        with pytest.raises(InputError, match="is a pickle"):
            read_header(tmp_path / name)
