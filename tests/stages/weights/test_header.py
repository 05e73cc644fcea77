"""Directories, index files and headers, complete and damaged."""

import json
import struct

import numpy as np
import pytest

from stages.base.errors import InputError
from stages.fetch.local import weight_files
from stages.weights.header import read_header
from stages.weights.sources import as_tensor, open_directory, open_rank
from stages.weights.transfer import read_tensor
from tests.stages.weights.checkpoints import (
    assert_same,
    make_model,
    read_directory,
    write_hf,
    write_safetensors,
)

INDEX = "model.safetensors.index.json"
FIRST, SECOND = (f"model-0000{number}-of-00002.safetensors" for number in (1, 2))
NORM = "model.norm.weight"


@pytest.fixture
def sharded(tmp_path):
    write_hf(tmp_path / "hf", make_model(), shards=2)
    return tmp_path / "hf"


def _edit(directory, change):
    values = json.loads((directory / INDEX).read_text())
    change(values["weight_map"])
    (directory / INDEX).write_text(json.dumps(values))


def _values(directory):
    return {name: read_tensor(as_tensor(stored)) for name, stored in open_directory(directory).items()}


def test_sharded_directory(sharded):
    bits = read_directory(sharded)
    expected = {name: (array.astype(np.uint32) << 16).view(np.float32) for name, array in bits.items()}
    assert_same(_values(sharded), expected)


@pytest.mark.parametrize(
    "path", ["../secret.safetensors", "/etc/passwd", "a/b.safetensors", "..", ".", "", "é" * 300]
)
def test_index_cannot_leave_its_directory(sharded, path):
    secret = {NORM: np.zeros(2, np.uint32)}
    write_safetensors(sharded.parent / "secret.safetensors", secret, "float32")
    _edit(sharded, lambda files: files.update({NORM: path}))
    with pytest.raises(InputError, match=f"{NORM}=.*: must be a file name within the index's own directory"):
        open_directory(sharded)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda files: files.update({NORM: "model-3.safetensors"}), "model-3.safetensors: is missing; "),
        (lambda files: files.update({NORM: FIRST}), f"{NORM}={FIRST}: the index names a file"),
        (lambda files: files.pop(NORM), f"{SECOND}: {NORM}: is not in"),
        (lambda files: files.update({NORM: "pytorch_model-00001.bin"}), "save the model as safetensors"),
    ],
)
def test_index_that_disagrees_with_its_files(sharded, change, message):
    _edit(sharded, change)
    with pytest.raises(InputError, match=message):
        open_directory(sharded)


def test_the_same_tensor_in_two_files(tmp_path):
    for name in ("a", "b"):
        write_safetensors(tmp_path / f"{name}.safetensors", {"w": np.zeros(2, np.uint32)}, "float32")
    with pytest.raises(InputError, match=r"b.safetensors: w: is in .*a.safetensors too"):
        open_directory(tmp_path)


def test_empty_directories(tmp_path):
    for open_path in (open_directory, open_rank):
        for path in (tmp_path, tmp_path / "none"):
            with pytest.raises(InputError, match=r"holds no \*.safetensors and no \*.ckpt"):
                open_path(path)


@pytest.mark.parity
@pytest.mark.parametrize("removed", [(), ("model.safetensors",), (INDEX,)])
def test_reads_the_files_that_transformers_loads(tmp_path, removed):
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    write_hf(tmp_path, make_model(), shards=2, seed=1)  # with their index, as older exports leave them
    write_hf(tmp_path, make_model(), seed=2)
    torch.save({}, tmp_path / "pytorch_model.bin")
    for name in removed:
        (tmp_path / name).unlink()
    loaded = transformers.Qwen2ForCausalLM.from_pretrained(tmp_path, dtype=torch.bfloat16).state_dict()
    assert_same(_values(tmp_path), {name: tensor.float().numpy() for name, tensor in loaded.items()})
    assert {stored.file.name for stored in open_directory(tmp_path).values()} <= set(
        weight_files(tmp_path)[0]
    )


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
    "truncated": (_single() | {"b": _entry(8, 16, [2])}, 15), "extra bytes": (_single(), 9),
    "wrong length": (_single(shape=(3,)), 8), "offsets reversed": (_single(8, 0), 8),
    "not utf-8": (b"{\xff", 0), "known to the library only": (_single(dtype="C64", shape=(1,)), 8),
    "duplicate": (TWICE.encode(), 8), "deep": (b"[" * 100_000, 0),
    "size overflow": (_single(0, 8, (2**62, 4)), 8),
}  # fmt: skip


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
