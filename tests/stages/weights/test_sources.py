"""Directories and index files, whole and damaged."""

import json

import numpy as np
import pytest

from pipeline.cli import main
from stages.base.errors import InputError
from stages.fetch.local import weight_files
from stages.weights.complete import merge_directory
from stages.weights.export import export_directory
from stages.weights.index import unused_index
from stages.weights.sources import open_directory, open_rank, whole
from stages.weights.split import split_directory
from stages.weights.strategy.stage import write_strategy
from stages.weights.transfer import read_tensor
from tests.stages.weights.checkpoints import make_layout, make_model, read_bits, write_hf, write_safetensors

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


def two_sets(directory):
    """A single file and the shards of other weights with their index, as older exports leave them."""
    model = make_model()
    write_hf(directory, model, shards=2, seed=1)
    return write_hf(directory, model, seed=2)


def test_a_single_file_counts_before_an_index(tmp_path):
    bits = two_sets(tmp_path)
    assert {stored.file.name for stored in open_directory(tmp_path).values()} == {"model.safetensors"}
    assert open_directory(tmp_path).keys() == bits.keys()
    (tmp_path / "model.safetensors").unlink()
    assert {stored.file.name for stored in open_directory(tmp_path).values()} == {FIRST, SECOND}


@pytest.mark.parity
@pytest.mark.parametrize("removed", [(), ("model.safetensors",), ("model.safetensors.index.json",)])
def test_the_weights_that_count_are_those_that_transformers_loads(tmp_path, removed):
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    two_sets(tmp_path)
    torch.save({}, tmp_path / "pytorch_model.bin")
    for name in removed:
        (tmp_path / name).unlink()
    loaded = transformers.Qwen2ForCausalLM.from_pretrained(tmp_path, dtype=torch.bfloat16).state_dict()
    names = weight_files(tmp_path)
    assert ("model.safetensors" in names) is ("model.safetensors" not in removed)
    for name, stored in open_directory(tmp_path).items():
        assert stored.file.name in names
        np.testing.assert_array_equal(read_tensor(whole(stored)), loaded[name].float().numpy())


def test_an_index_of_other_files_is_told(tmp_path):
    bits = two_sets(tmp_path)
    assert f"{tmp_path}: holds both model.safetensors and" in unused_index(tmp_path)
    (tmp_path / INDEX).write_text("{")
    assert unused_index(tmp_path)
    (tmp_path / INDEX).write_text(json.dumps({"weight_map": dict.fromkeys(bits, "model.safetensors")}))
    assert unused_index(tmp_path) is None
    (tmp_path / "model.safetensors").unlink()
    assert unused_index(tmp_path) is None


def test_convert_split_and_export_read_the_single_file(tmp_path, capsys):
    hf, model = tmp_path / "hf", make_model()
    bits = two_sets(hf)
    assert main(["convert", str(hf), str(tmp_path / "ms")]) == 0
    assert main(["export", str(tmp_path / "ms"), str(hf), str(tmp_path / "back")]) == 0
    assert capsys.readouterr().err.count(f"warning: {hf}: holds both model.safetensors and") == 2
    assert sorted(file.name for file in (tmp_path / "back").glob("model*")) == ["model.safetensors"]
    write_strategy(model, make_layout(model_parallel=2), tmp_path / "strategy")
    split_directory(hf, tmp_path / "strategy", tmp_path / "ranks")
    merge_directory(tmp_path / "ranks", tmp_path / "strategy", tmp_path / "merged")
    export_directory(tmp_path / "merged", hf, tmp_path / "again")
    for directory in ("back", "again"):
        found = read_bits(tmp_path / directory / "model.safetensors")
        assert all(np.array_equal(found[name], array) for name, array in bits.items())
