"""Weights in memory: load, write_ranks, merge_ranks."""

import numpy as np
import pytest
import safetensors.numpy

from stages.base.errors import InputError
from stages.models.families import parameter_shapes
from stages.weights.strategy.files import read_strategy
from stages.weights.strategy.stage import write_strategy
from stages.weights.tensors import merge_ranks, write_rank, write_ranks
from tests.stages.weights.checkpoints import assert_same, make_layout, make_model
from tests.stages.weights.plain_slicing import rank_part

LAYOUT = {"data_parallel": 2, "model_parallel": 2, "pipeline_stage": 2}


def _full(model):
    generator = np.random.default_rng(0)
    shapes = parameter_shapes(model)
    full = {name: generator.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    return full | {"global_step": np.array(3, np.int64)}


def test_ranks_and_back(tmp_path):
    model = make_model()
    write_strategy(model, make_layout(**LAYOUT), tmp_path / "strategy")
    full = _full(model)
    write_ranks(full, tmp_path / "strategy", tmp_path / "ranks", None)
    assert_same(merge_ranks(tmp_path / "ranks", tmp_path / "strategy" / "merged_ckpt_strategy.ckpt"), full)
    strategy = read_strategy(tmp_path / "strategy")
    for rank in range(8):
        by_library = safetensors.numpy.load_file(tmp_path / "ranks" / f"rank_{rank}" / "model.safetensors")
        expected = {
            name: rank_part(full[name], layout, rank)
            for name, layout in strategy.tensors.items()
            if not name.startswith("adam_") and rank // 4 in layout.stages
        }
        assert_same(by_library, expected | {"global_step": full["global_step"]})


def test_storage_dtype(tmp_path):
    model = make_model()
    write_strategy(model, make_layout(), tmp_path / "strategy")
    full = _full(model)
    write_ranks(full, tmp_path / "strategy", tmp_path / "ranks", "bfloat16")
    merged = merge_ranks(tmp_path / "ranks", tmp_path / "strategy")
    assert merged["global_step"] == 3
    np.testing.assert_allclose(merged["lm_head.weight"], full["lm_head.weight"], rtol=2**-8)
    write_ranks(merged, tmp_path / "strategy", tmp_path / "again", "bfloat16")
    file = "rank_0/model.safetensors"
    assert (tmp_path / "again" / file).read_bytes() == (tmp_path / "ranks" / file).read_bytes()


def test_strides_and_byte_order(tmp_path):
    """safetensors 0.8's save_file ignores strides; this one must not."""
    array = np.arange(12, dtype=np.float32).reshape(3, 4)
    write_rank({"t": array.T, "s": array[:, 1:3], "b": array.astype(">f4")}, tmp_path / "x.safetensors", None)
    written = safetensors.numpy.load_file(tmp_path / "x.safetensors")
    assert_same(written, {"t": array.T, "s": array[:, 1:3], "b": array})
    with pytest.raises(InputError, match="complex64"):
        write_rank({"c": np.zeros(2, np.complex64)}, tmp_path / "y.safetensors", None)
