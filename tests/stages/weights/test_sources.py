"""Directories and index files, whole and damaged."""

import json

import numpy as np
import pytest

from stages.base.errors import InputError
from stages.weights.sources import open_directory, open_rank, whole
from stages.weights.transfer import read_tensor
from tests.stages.weights.checkpoints import make_model, read_bits, write_hf, write_safetensors

INDEX = "model.safetensors.index.json"


@pytest.fixture
def sharded(tmp_path):
    write_hf(tmp_path / "hf", make_model(), shards=2)
    return tmp_path / "hf"


def _edit(directory, change):
    values = json.loads((directory / INDEX).read_text())
    change(values["weight_map"])
    (directory / INDEX).write_text(json.dumps(values))


def test_an_index_that_names_no_possible_file(tmp_path):
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"a": "é" * 300}}))
    with pytest.raises(InputError, match="must be a file name"):
        open_directory(tmp_path)


def test_sharded_directory(sharded):
    expected = {}
    for file in sharded.glob("*.safetensors"):
        expected |= read_bits(file)
    found = open_directory(sharded)
    assert found.keys() == expected.keys()
    for name, stored in found.items():
        values = (expected[name].astype(np.uint32) << 16).view(np.float32)
        np.testing.assert_array_equal(read_tensor(whole(stored)), values)


@pytest.mark.parametrize("path", ["../secret.safetensors", "/etc/passwd", "a/b.safetensors", "..", ".", ""])
def test_an_index_cannot_leave_its_directory(sharded, path):
    write_safetensors(
        sharded.parent / "secret.safetensors", {"model.norm.weight": np.zeros(2, np.uint32)}, "float32"
    )
    _edit(sharded, lambda files: files.update({"model.norm.weight": path}))
    with pytest.raises(
        InputError, match=r"model.norm.weight=.*: must be a file name within the index's own directory"
    ):
        open_directory(sharded)


FIRST, SECOND = (f"model-0000{number}-of-00002.safetensors" for number in (1, 2))
NORM = "model.norm.weight"


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda files: files.update({NORM: "model-3.safetensors"}), "model-3.safetensors: is missing; "),
        (
            lambda files: files.update({NORM: FIRST}),
            f"{NORM}=.*: the index places this tensor in a file that",
        ),
        (lambda files: files.pop(NORM), f"{SECOND}: {NORM}: is not in"),
    ],
)
def test_an_index_that_disagrees_with_its_files(sharded, change, told):
    _edit(sharded, change)
    with pytest.raises(InputError, match=told):
        open_directory(sharded)


def test_index_that_is_no_index(sharded):
    for content in ("{", "[]", '{"weight_map": 3}', '{"weight_map": {"a": 3}}'):
        (sharded / INDEX).write_text(content)
        with pytest.raises(InputError, match=INDEX):
            open_directory(sharded)


def test_index_of_pickles(sharded):
    (sharded / INDEX).write_text('{"weight_map": {"a": "pytorch_model-00001.bin"}}')
    with pytest.raises(InputError, match="save the model as safetensors"):
        open_directory(sharded)


def test_the_same_tensor_in_two_files(tmp_path):
    for name in ("a", "b"):
        write_safetensors(tmp_path / f"{name}.safetensors", {"w": np.zeros(2, np.uint32)}, "float32")
    with pytest.raises(InputError, match=r"b.safetensors: w: stands in .*a.safetensors too"):
        open_directory(tmp_path)


def test_empty_directories(tmp_path):
    with pytest.raises(InputError, match=r"holds no \*.safetensors"):
        open_directory(tmp_path)
    with pytest.raises(InputError, match=r"holds no \*.safetensors"):
        open_directory(tmp_path / "none")
    with pytest.raises(InputError, match=r"holds no \*.safetensors and no \*.ckpt"):
        open_rank(tmp_path)


def test_a_name_map_that_mindrlhf_left_beside_a_single_file(tmp_path):
    bits = write_hf(tmp_path, make_model())
    (tmp_path / "param_name_map.json").write_text('{"model.norm_out.weight": "model.safetensors"}')
    assert open_directory(tmp_path).keys() == bits.keys()
