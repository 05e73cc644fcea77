"""MindSpore reads the .ckpt files that are written without it, and its own are read to the last byte."""

import numpy as np
import pytest

from stages.base.errors import InputError
from stages.weights.ckpt import build_ckpt, read_ckpt
from stages.weights.complete import merge_directory
from stages.weights.sources import as_tensor, open_directory
from stages.weights.split import split_directory
from stages.weights.transfer import read_tensor
from tests.stages.weights.checkpoints import (
    assert_same,
    make_model,
    read_bits,
    read_directory,
    write_ranks_of,
)

ARRAYS = {
    "weight": np.arange(1200, dtype=np.float32).reshape(30, 40) / 7,
    "half": np.linspace(-2, 2, 10).astype(np.float16), "steps": np.array([2**40, -1]),
    "flag": np.array([True, False, True]), "scalar": np.array(3.5, np.float32),
    "empty_name.moments.0": np.zeros((2, 1, 3), np.int32),
}  # fmt: skip


def _load(file):
    """Return name -> (shape, bytes) as MindSpore reads them."""
    mindspore = pytest.importorskip("mindspore")
    loaded = mindspore.load_checkpoint(str(file))
    return {name: (parameter.shape, bytes(parameter.get_bytes())) for name, parameter in loaded.items()}


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_split_as_ckpt(tmp_path, monkeypatch, dtype):
    monkeypatch.setattr("stages.weights.ckpt.SLICE_BYTES", 100)  # large tensors are several values
    write_ranks_of(tmp_path, make_model(torch_dtype=dtype), model_parallel=2, pipeline_stage=2)
    split_directory(tmp_path / "hf", tmp_path / "strategy", tmp_path / "ckpt", file_format="ckpt")
    for rank in range(4):
        expected = read_bits(tmp_path / "ranks" / f"rank_{rank}" / "model.safetensors")
        loaded = _load(tmp_path / "ckpt" / f"rank_{rank}" / "model.ckpt")
        assert loaded == {name: (bits.shape, bits.tobytes()) for name, bits in expected.items()}


def test_lengths_of_a_large_tensor():
    """The embedding of 72B is longer than a 32-bit length; no byte of it is needed to lay it out."""
    plan = build_ckpt([("e", "F32", (152064, 8192))])
    (parts,) = plan.regions
    assert [first for first, _, _ in parts] == [last for _, last, _ in [(0, 0, 0), *parts[:-1]]]
    assert sum(last - first for first, last, _ in parts) == 152064
    assert plan.size > 152064 * 8192 * 4 > 2**32


@pytest.mark.parametrize("crc_check", [False, True])
def test_reads_what_mindspore_saves(tmp_path, monkeypatch, crc_check):
    mindspore = pytest.importorskip("mindspore")
    monkeypatch.setattr("mindspore.train.serialization.SLICE_SIZE", 1)
    values = [{"name": name, "data": mindspore.Tensor(array)} for name, array in ARRAYS.items()]
    mindspore.save_checkpoint(values, str(tmp_path / "model.ckpt"), crc_check=crc_check)
    stored = open_directory(tmp_path / "model.ckpt")
    assert len(stored["weight"].extents) > 1
    tensors = {name: read_tensor(as_tensor(tensor)) for name, tensor in stored.items()}
    values = {name: value.astype(np.float32) if name == "half" else value for name, value in ARRAYS.items()}
    assert_same(tensors, values)


def test_merging_ranks_as_ckpt(tmp_path, monkeypatch):
    monkeypatch.setattr("stages.weights.ckpt.SLICE_BYTES", 300)
    write_ranks_of(tmp_path, make_model(), model_parallel=2, pipeline_stage=2)
    split_directory(tmp_path / "hf", tmp_path / "strategy", tmp_path / "ckpt", file_format="ckpt")
    newest = tmp_path / "ckpt" / "rank_0"  # as MindSpore names what it saves every few steps
    (newest / "model.ckpt").rename(newest / "grpo_rank_0-1_10.ckpt")
    (newest / "grpo_rank_0-1_9.ckpt").write_bytes(b"not read")
    for ranks in ("ranks", "ckpt"):
        merge_directory(tmp_path / ranks, tmp_path / "strategy", tmp_path / f"merged_{ranks}")
    assert_same(read_directory(tmp_path / "merged_ckpt"), read_directory(tmp_path / "merged_ranks"))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b"Float32", b"Float99"),
        (b"\x08\x03", b"\x08\x04"),  # a shape that does not fit the content
        (b"\x1a\x0c", b"\x1a\x7f"),  # a content beyond the file's end
        (b"\x0a\x01a", b"\x0a\x01\xff"),  # a name that is not UTF-8
        *((None, content) for content in (b"PK\x03\x04pickled", b"\x80\x02}q\x00.", b"\x0a\x03\x0a\x01a")),
    ],
)
def test_damaged_files_are_refused(tmp_path, old, new):
    plan = build_ckpt([("a", "F32", (3,))])
    content = plan.frames[0][1].ljust(plan.size, b"\0")
    assert old is None or old in content
    (tmp_path / "model.ckpt").write_bytes(content.replace(old, new) if old else new)
    with pytest.raises(InputError, match=r"model\.ckpt"):
        read_ckpt(tmp_path / "model.ckpt")
