"""merge(split(x)) is x; incomplete rank directories are refused."""

import functools
import json
import shutil

import numpy as np
import pytest

from stages.base.errors import InputError
from stages.weights import complete
from stages.weights.complete import merge_directory
from stages.weights.split import split_directory
from stages.weights.strategy.stage import write_strategy
from tests.stages.weights.checkpoints import make_layout, make_model, read_bits, write_hf, write_safetensors

LAYOUT = {"data_parallel": 2, "model_parallel": 2, "pipeline_stage": 2, "enable_parallel_optimizer": True}


@pytest.fixture
def ranks(tmp_path):
    model = make_model()
    write_hf(tmp_path / "hf", model)
    write_strategy(model, make_layout(parallel_optimizer_threshold_kb=0, **LAYOUT), tmp_path / "strategy")
    split_directory(tmp_path / "hf", tmp_path / "strategy", tmp_path / "ranks")
    return tmp_path


def _merge(folder):
    merge_directory(folder / "ranks", folder / "strategy", folder / "out")


def test_merge_equals_mindspore_and_the_source(ranks, transform_checkpoints):
    _merge(ranks)
    ours = read_bits(ranks / "out" / "model-00001-of-00001.safetensors")
    merged = str(ranks / "strategy" / "merged_ckpt_strategy.ckpt")
    transform_checkpoints(
        str(ranks / "ranks"), str(ranks / "theirs"), "t", merged, None, output_format="safetensors"
    )
    theirs = read_bits(ranks / "theirs" / "rank_0" / "t0.safetensors")
    source = read_bits(ranks / "hf" / "model.safetensors")
    assert ours.keys() == theirs.keys()
    for name, array in ours.items():
        np.testing.assert_array_equal(array, theirs[name], err_msg=name)
    np.testing.assert_array_equal(
        ours["model.layers.3.feed_forward.w2.weight"], source["model.layers.3.mlp.down_proj.weight"]
    )


def test_sharded_by_size(ranks, monkeypatch):
    monkeypatch.setattr("stages.weights.complete.by_size", functools.partial(complete.by_size, limit=20_000))
    _merge(ranks)
    files = json.loads((ranks / "out" / "param_name_map.json").read_text())
    found = {}
    for file in sorted((ranks / "out").glob("*.safetensors")):
        assert file.stat().st_size < 30_000
        for name, array in read_bits(file).items():
            assert files[name] == file.name
            found[name] = array
    assert found.keys() == files.keys()
    source = read_bits(ranks / "hf" / "model.safetensors")
    assert sum(array.nbytes for array in found.values()) == sum(array.nbytes for array in source.values())


def test_one_replica_is_enough(ranks):
    model = make_model()
    write_strategy(model, make_layout(data_parallel=2, model_parallel=2), ranks / "plain")
    split_directory(ranks / "hf", ranks / "plain", ranks / "plain_ranks")
    for rank in (2, 3):  # the second replica of the data
        shutil.rmtree(ranks / "plain_ranks" / f"rank_{rank}")
    merge_directory(ranks / "plain_ranks", ranks / "plain", ranks / "out")
    assert (ranks / "out" / "param_name_map.json").is_file()


def test_missing_rank(ranks):
    shutil.rmtree(ranks / "ranks" / "rank_5")
    with pytest.raises(InputError, match=r"only \d+ of \d+ elements are present"):
        _merge(ranks)
    assert not (ranks / "out").exists()


def test_missing_tensor(ranks):
    file = ranks / "ranks" / "rank_3" / "model.safetensors"
    bits = read_bits(file)
    del bits["model.layers.0.attention.wq.bias"]
    write_safetensors(file, bits, "bfloat16")
    with pytest.raises(InputError, match=r"rank_3=model.layers.0.attention.wq.bias: this tensor is missing"):
        _merge(ranks)


def test_slice_of_another_shape(ranks):
    file = ranks / "ranks" / "rank_3" / "model.safetensors"
    bits = read_bits(file)
    bits["model.layers.0.attention.wq.bias"] = bits["model.layers.0.attention.wq.bias"][:-1]
    write_safetensors(file, bits, "bfloat16")
    with pytest.raises(
        InputError, match=r"rank_3/model.safetensors: model.layers.0.attention.wq.bias=\[15\]: its shape"
    ):
        _merge(ranks)


def test_unmerged_strategy_of_one_stage(ranks):
    with pytest.raises(InputError, match="the strategy"):
        merge_directory(ranks / "ranks", ranks / "strategy" / "ckpt_strategy_rank_0.ckpt", ranks / "out")
    with pytest.raises(InputError, match="a pipeline stage's strategy is missing"):
        merge_directory(ranks / "ranks", ranks / "strategy" / "ckpt_strategy_rank_4.ckpt", ranks / "out")


def test_no_rank_directory(ranks):
    with pytest.raises(InputError, match="holds no rank_K directory"):
        merge_directory(ranks / "hf", ranks / "strategy", ranks / "out")
    (ranks / "ranks" / "rank_0" / "second.safetensors").write_bytes(b"")
    with pytest.raises(InputError, match="must hold one weight file"):
        _merge(ranks)


def test_checkpoints_saved_without_redundancy(tmp_path):
    """MindSpore's remove_redundancy: of equal slices one rank has one, and the metadata says so."""
    model = make_model()
    write_hf(tmp_path / "hf", model)
    write_strategy(model, make_layout(data_parallel=2, model_parallel=2), tmp_path / "strategy")
    split_directory(tmp_path / "hf", tmp_path / "strategy", tmp_path / "ranks")
    merge_directory(tmp_path / "ranks", tmp_path / "strategy", tmp_path / "expected")
    metadata = {"format": "ms", "remove_redundancy": "True"}
    for rank in range(4):
        file = tmp_path / "ranks" / f"rank_{rank}" / "model.safetensors"
        bits = read_bits(file)
        mine = {name: array for i, (name, array) in enumerate(sorted(bits.items())) if i % 2 == rank // 2}
        write_safetensors(file, mine, "bfloat16", metadata)
    merge_directory(tmp_path / "ranks", tmp_path / "strategy", tmp_path / "out")
    for folder in ("out", "expected"):
        (tmp_path / folder / "param_name_map.json").unlink()
    found, expected = (
        read_bits(tmp_path / folder / "model-00001-of-00001.safetensors") for folder in ("out", "expected")
    )
    assert found.keys() == expected.keys()
    assert all(np.array_equal(found[name], expected[name]) for name in expected)
