"""What MindSpore saves as .ckpt is read without it, to the last byte."""

import numpy as np
import pytest

from stages.base.errors import InputError
from stages.weights.ckpt import build_ckpt
from stages.weights.ckpt_reader import read_ckpt
from stages.weights.complete import merge_directory
from stages.weights.sources import open_directory, whole
from stages.weights.split import split_directory
from stages.weights.strategy.stage import write_strategy
from stages.weights.transfer import read_tensor
from tests.stages.weights.checkpoints import make_layout, make_model, read_bits, write_hf

MERGED = "model-00001-of-00001.safetensors"
ARRAYS = {
    "weight": np.arange(1200, dtype=np.float32).reshape(30, 40) / 7,
    "half": np.linspace(-2, 2, 10).astype(np.float16),
    "steps": np.array([2**40, -1]),
    "flag": np.array([True, False, True]),
    "scalar": np.array(3.5, np.float32),
    "empty_name.moments.0": np.zeros((2, 1, 3), np.int32),
}


@pytest.fixture(params=[False, True], ids=["plain", "crc"])
def saved(request, tmp_path, monkeypatch):
    mindspore = pytest.importorskip("mindspore")
    monkeypatch.setattr("mindspore.train.serialization.SLICE_SIZE", 1)
    values = [{"name": name, "data": mindspore.Tensor(array)} for name, array in ARRAYS.items()]
    mindspore.save_checkpoint(values, str(tmp_path / "model.ckpt"), crc_check=request.param)
    return tmp_path / "model.ckpt"


def test_reads_what_mindspore_saves(saved):
    found = open_directory(saved)
    assert len(found["weight"].extents) > 1
    assert found.keys() == ARRAYS.keys()
    for name, array in ARRAYS.items():
        read = read_tensor(whole(found[name]))
        assert read.shape == array.shape
        np.testing.assert_array_equal(read, array)


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_ranks_as_ckpt_merge_to_the_same_bytes(tmp_path, dtype, monkeypatch):
    monkeypatch.setattr("stages.weights.ckpt.SLICE_BYTES", 300)
    model = make_model(torch_dtype=dtype)
    write_hf(tmp_path / "hf", model)
    write_strategy(model, make_layout(model_parallel=2, pipeline_stage=2), tmp_path / "strategy")
    for file_format in ("safetensors", "ckpt"):
        ranks = tmp_path / file_format
        split_directory(tmp_path / "hf", tmp_path / "strategy", ranks, file_format=file_format)
        merge_directory(ranks, tmp_path / "strategy", tmp_path / f"merged-{file_format}")
    expected = read_bits(tmp_path / "merged-safetensors" / MERGED)
    found = read_bits(tmp_path / "merged-ckpt" / MERGED)
    assert found.keys() == expected.keys()
    assert all(np.array_equal(found[name], expected[name]) for name in expected)
    newest = tmp_path / "ckpt" / "rank_0"  # as MindSpore names what it saves every few steps
    (newest / "model.ckpt").rename(newest / "grpo_rank_0-1_10.ckpt")
    (newest / "grpo_rank_0-1_9.ckpt").write_bytes(b"not read")
    merge_directory(tmp_path / "ckpt", tmp_path / "strategy", tmp_path / "again")


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04pickled", b"\x80\x02}q\x00.", b"\x0a\x03\x0a\x01a"])
def test_what_is_no_ckpt_is_refused(tmp_path, content):
    (tmp_path / "model.ckpt").write_bytes(content)
    with pytest.raises(InputError, match=r"is not a whole \.ckpt file"):
        open_directory(tmp_path)


def test_unknown_types_and_lengths_are_refused(tmp_path):
    frames, _, size = build_ckpt([("a", "F32", (3,))])
    content = bytearray(size)
    content[: len(frames[0][1])] = frames[0][1]
    file = tmp_path / "model.ckpt"
    file.write_bytes(content.replace(b"Float32", b"Float99"))
    with pytest.raises(InputError, match=r"model.ckpt: a=Float99: unknown tensor type"):
        read_ckpt(file)
    file.write_bytes(content.replace(b"\x08\x03", b"\x08\x04"))
    with pytest.raises(InputError, match="takes 16 bytes, its parts hold 12"):
        read_ckpt(file)
