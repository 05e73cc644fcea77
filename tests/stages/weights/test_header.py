"""Directories, index files and headers, complete and damaged."""

import itertools
import json
import struct

import numpy as np
import pytest

from stages.base.errors import InputError
from stages.weights.header import read_header
from stages.weights.sources import as_tensor, open_directory, open_rank
from stages.weights.transfer import read_tensor
from tests.stages.weights.checkpoints import assert_same, make_model, write_hf, write_safetensors

INDEX = "model.safetensors.index.json"
FIRST, SECOND = (f"model-0000{number}-of-00002.safetensors" for number in (1, 2))
NORM = "model.norm.weight"


@pytest.fixture
def sharded(tmp_path):
    write_hf(tmp_path / "hf", make_model(), shards=2)
    return tmp_path / "hf"


def _values(directory):
    return {name: read_tensor(as_tensor(stored)) for name, stored in open_directory(directory).items()}


OUTSIDE = ("../secret.safetensors", "/etc/passwd", "a/b.safetensors", "..", ".", "", "é" * 300)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        *(({NORM: path}, f"{NORM}=.*: must be a file name within the index's own") for path in OUTSIDE),
        ({NORM: "model-3.safetensors"}, "model-3.safetensors: is missing; "),
        ({NORM: FIRST}, f"{NORM}: the index names {FIRST} .*; {SECOND} contains"),
        ({NORM: None}, f"{NORM}: the index names no file .*; {SECOND} contains"),
        ({NORM: "pytorch_model-00001.bin"}, "save the model as safetensors"),
    ],
)
def test_an_index_that_leaves_its_directory_or_disagrees_with_its_files(sharded, changes, message):
    write_safetensors(sharded.parent / "secret.safetensors", {NORM: np.zeros(2, np.uint32)}, "float32")
    files = json.loads((sharded / INDEX).read_text())["weight_map"] | changes
    files = {name: file for name, file in files.items() if file is not None}
    (sharded / INDEX).write_text(json.dumps({"weight_map": files}))
    with pytest.raises(InputError, match=message):
        open_directory(sharded)


def test_the_same_tensor_in_two_files_and_no_file(tmp_path):
    for open_path, path in itertools.product((open_directory, open_rank), (tmp_path, tmp_path / "none")):
        with pytest.raises(InputError, match=r"holds no \*.safetensors and no \*.ckpt"):
            open_path(path)
    for name in ("a", "b"):
        write_safetensors(tmp_path / f"{name}.safetensors", {"w": np.zeros(2, np.uint32)}, "float32")
    with pytest.raises(InputError, match=r"b.safetensors: w: is in .*a.safetensors too"):
        open_directory(tmp_path)


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


def _file(header, size):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + bytes(size)


def _entry(begin, end, shape, dtype="F32"):
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


def _single(begin=0, end=8, shape=(2,), dtype="F32"):
    return {"a": _entry(begin, end, list(shape), dtype)}


TWICE = json.dumps(_single(0, 4, (1,)))[:-1] + ", " + json.dumps(_single(4, 8, (1,)))[1:]
DAMAGED = {
    "overlap": _file(_single() | {"b": _entry(4, 12, [2])}, 12),
    "gap": _file(_single() | {"b": _entry(12, 20, [2])}, 20),
    "truncated": _file(_single() | {"b": _entry(8, 16, [2])}, 15), "extra bytes": _file(_single(), 9),
    "wrong length": _file(_single(shape=(3,)), 8), "offsets reversed": _file(_single(8, 0), 8),
    "known to the library only": _file(_single(dtype="C64", shape=(1,)), 8),
    "duplicate": _file(TWICE.encode(), 8), "size overflow": _file(_single(0, 8, (2**62, 4)), 8),
    "short": b"1234567", "endless header": struct.pack("<Q", 2**60) + b"{}",
}  # fmt: skip


@pytest.mark.parametrize("content", DAMAGED.values(), ids=DAMAGED)
def test_a_damaged_file_is_refused(tmp_path, content):
    (tmp_path / "x.safetensors").write_bytes(content)
    with pytest.raises(InputError, match=r"x\.safetensors"):
        read_header(tmp_path / "x.safetensors")


@pytest.mark.parametrize("name", ["pytorch_model.bin", "consolidated.pth", "x.pt", "x.pkl"])
def test_a_pickle_is_refused(tmp_path, name):
    (tmp_path / name).touch()
    with pytest.raises(InputError, match="is a pickle"):
        read_header(tmp_path / name)
