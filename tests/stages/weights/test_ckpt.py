"""MindSpore reads the .ckpt files that are written without it."""

import numpy as np
import pytest

from stages.strategy.stage import write_strategy
from stages.weights.ckpt import build_ckpt
from stages.weights.convert import convert_directory
from stages.weights.split import split_directory
from tests.stages.weights.checkpoints import make_layout, make_model, read_bits, write_hf, write_safetensors


def _load(file):
    """Name -> (shape, bytes) as MindSpore sees them."""
    mindspore = pytest.importorskip("mindspore")
    found = mindspore.load_checkpoint(str(file))
    return {name: (one.shape, bytes(one.get_bytes())) for name, one in found.items()}


@pytest.mark.parametrize("dtype", ["bfloat16", "float32", "float16"])
def test_split_as_ckpt(tmp_path, dtype):
    model = make_model(torch_dtype=dtype)
    write_hf(tmp_path / "hf", model)
    write_strategy(model, make_layout(model_parallel=2, pipeline_stage=2), tmp_path / "strategy")
    split_directory(tmp_path / "hf", tmp_path / "strategy", tmp_path / "a")
    split_directory(tmp_path / "hf", tmp_path / "strategy", tmp_path / "b", file_format="ckpt")
    for rank in range(4):
        expected = read_bits(tmp_path / "a" / f"rank_{rank}" / "model.safetensors")
        found = _load(tmp_path / "b" / f"rank_{rank}" / "model.ckpt")
        assert found.keys() == expected.keys()
        for name, bits in expected.items():
            assert found[name] == (bits.shape, bits.tobytes())


def test_tensors_above_the_slice_size_stand_in_several_values(tmp_path, monkeypatch):
    monkeypatch.setattr("stages.weights.ckpt.SLICE_BYTES", 100)
    model = make_model(torch_dtype="float32")
    bits = write_hf(tmp_path / "hf", model)
    convert_directory(tmp_path / "hf", tmp_path / "ms", False, None, file_format="ckpt")
    assert [path.name for path in (tmp_path / "ms").iterdir()] == ["model.ckpt"]
    found = _load(tmp_path / "ms" / "model.ckpt")
    name = "model.layers.3.feed_forward.w2.weight"
    down = bits["model.layers.3.mlp.down_proj.weight"]
    assert found[name] == (down.shape, down.tobytes())
    assert found["lm_head.weight"][1] == bits["lm_head.weight"].tobytes()


def test_counters(tmp_path):
    model = make_model(torch_dtype="float32")
    write_hf(tmp_path / "hf", model)
    write_strategy(model, make_layout(), tmp_path / "strategy")
    split_directory(tmp_path / "hf", tmp_path / "strategy", tmp_path / "one")
    full = read_bits(tmp_path / "one" / "rank_0" / "model.safetensors")
    full["global_step"] = np.array(1078530011, np.uint32)  # the bits of 3.1415927
    write_safetensors(tmp_path / "full" / "m.safetensors", full, "float32")
    split_directory(tmp_path / "full", tmp_path / "strategy", tmp_path / "out", file_format="ckpt")
    step = _load(tmp_path / "out" / "rank_0" / "model.ckpt")["global_step"]
    assert step == ((), np.float32(np.pi).tobytes())


def test_lengths_of_a_large_tensor():
    """72B's embedding, beyond what a 32-bit length holds; no byte of it is needed to lay it out."""
    _, ((*parts,),), size = build_ckpt([("e", "F32", (152064, 8192))])
    assert [first for first, _, _ in parts] == [last for _, last, _ in [(0, 0, 0), *parts[:-1]]]
    assert sum(last - first for first, last, _ in parts) == 152064
    assert size > 152064 * 8192 * 4 > 2**32
