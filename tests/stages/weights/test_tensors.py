"""Weights in memory, and outputs that appear complete or not at all."""

import os

import numpy as np
import pytest
import safetensors.numpy

from stages.base.errors import InputError
from stages.models.families import parameter_shapes
from stages.weights.outputs import complete_directory
from stages.weights.strategy.files import read_strategy
from stages.weights.strategy.stage import write_strategy
from stages.weights.tensors import merge_ranks, write_rank, write_ranks
from tests.stages.weights.checkpoints import assert_same, make_layout, make_model, rank_part

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


def test_strides_and_byte_order(tmp_path):
    """safetensors 0.8's save_file ignores strides; this one must not."""
    array = np.arange(12, dtype=np.float32).reshape(3, 4)
    write_rank({"t": array.T, "s": array[:, 1:3], "b": array.astype(">f4")}, tmp_path / "x.safetensors", None)
    written = safetensors.numpy.load_file(tmp_path / "x.safetensors")
    assert_same(written, {"t": array.T, "s": array[:, 1:3], "b": array})


def test_system_calls_that_write_less_than_requested(tmp_path, monkeypatch):
    array, pwrite = np.arange(100, dtype=np.float32), os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda file, data, offset: pwrite(file, data[:7], offset))
    write_rank({"t": array}, tmp_path / "x.safetensors", None)
    assert_same(safetensors.numpy.load_file(tmp_path / "x.safetensors"), {"t": array})


def test_a_directory_appears_complete_or_not_at_all(tmp_path):
    (tmp_path / "deep" / ".out.part" / "rank_7").mkdir(parents=True)  # left by a killed process
    with complete_directory(tmp_path / "deep" / "out") as directory:
        (directory / "file").write_text("x")
        assert not (tmp_path / "deep" / "out").exists()
    assert [path.name for path in (tmp_path / "deep").rglob("*")] == ["out", "file"]
    assert (tmp_path / "deep" / "out").stat().st_mode & 0o777 == 0o755
    with pytest.raises(KeyboardInterrupt), complete_directory(tmp_path / "failed") as directory:
        (directory / "file").write_text("x")
        raise KeyboardInterrupt
    assert [path.name for path in tmp_path.iterdir()] == ["deep"]


def test_existing_targets_and_those_of_another_writer_are_not_overwritten(tmp_path):
    target = tmp_path / "out"
    with complete_directory(tmp_path / "first") as directory:
        with pytest.raises(InputError, match="is being written"), complete_directory(tmp_path / "first"):
            pytest.fail("both write")
        (directory / "file").touch()
    with pytest.raises(InputError, match="exists already"), complete_directory(target) as directory:
        (directory / "file").write_text("ours")
        target.mkdir()
        (target / "file").write_text("theirs")
    for existing in (target, target / "file"):
        with pytest.raises(InputError, match="exists already"), complete_directory(existing):
            pytest.fail("it exists")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["first", "out"]
    assert (target / "file").read_text() == "theirs"
