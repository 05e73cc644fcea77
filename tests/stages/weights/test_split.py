"""split against plain NumPy slicing, against MindSpore's own transform, and on damaged inputs."""

import os
import shutil

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stages.base.errors import InputError
from stages.models.tensor_layout import TensorLayout
from stages.weights.convert import convert_directory
from stages.weights.sources import as_tensor, open_directory, open_ranks
from stages.weights.split import split, split_directory
from stages.weights.strategy.files import Strategy, read_strategy
from stages.weights.strategy.stage import write_strategy
from stages.weights.transfer import read_tensor
from tests.stages.weights.checkpoints import (
    assert_same,
    make_layout,
    make_model,
    rank_part,
    read_bits,
    read_directory,
    write_hf,
    write_ranks_of,
    write_safetensors,
)

OPTIMIZER = {"enable_parallel_optimizer": True, "parallel_optimizer_threshold_kb": 0}
KEYS = ("data_parallel", "model_parallel", "pipeline_stage", "context_parallel")
DEGREES = [
    (1, 2, 1, 1), (1, 4, 1, 1), (2, 1, 1, 1), (2, 2, 1, 1), (2, 4, 1, 1), (1, 1, 2, 1), (1, 2, 2, 1),
    (1, 4, 2, 1), (2, 2, 2, 1), (1, 1, 4, 1), (1, 2, 1, 2), (2, 2, 1, 2), (1, 2, 2, 2), (2, 1, 2, 2),
]  # fmt: skip
LAYOUTS = [
    *(dict(zip(KEYS, degrees, strict=True)) for degrees in DEGREES),
    {"data_parallel": 4, "model_parallel": 2, **OPTIMIZER},
    {"data_parallel": 4, "model_parallel": 2, "optimizer_weight_shard_size": 2, **OPTIMIZER},
    {"data_parallel": 2, "model_parallel": 4, "vocab_emb_dp": True, **OPTIMIZER},
    {"data_parallel": 2, "model_parallel": 2, "pipeline_stage": 2, "offset": (1, -1), **OPTIMIZER},
    {"data_parallel": 2, "model_parallel": 2, "context_parallel": 2, **OPTIMIZER},
    {"data_parallel": 8, "optimizer_weight_shard_size": 4, **OPTIMIZER},
    {"model_parallel": 4, "use_seq_parallel": True, "context_parallel": 2},
    {"data_parallel": 2, "model_parallel": 2, "vocab_emb_dp": True},
]  # fmt: skip


CASES = [  # layout, qkv_concat, dtype
    *((layout, i % 2 == 1, "bfloat16") for i, layout in enumerate(LAYOUTS)),
    *((layout, i % 2 == 0, "float32") for i, layout in enumerate(LAYOUTS[-8:])),
]


@pytest.mark.parametrize(("layout", "qkv_concat", "dtype"), CASES)
def test_equals_mindspore(tmp_path, transform_checkpoints, layout, qkv_concat, dtype):
    """ms.transform_checkpoints cuts a complete checkpoint by our strategy file into the same bytes."""
    model = make_model(qkv_concat=qkv_concat, torch_dtype=dtype)
    write_ranks_of(tmp_path, model, **layout)
    convert_directory(tmp_path / "hf", tmp_path / "flat", qkv_concat, None)
    bits = read_directory(tmp_path / "flat")
    write_safetensors(tmp_path / "full" / "rank_0" / "full.safetensors", bits, dtype)
    merged = str(tmp_path / "strategy" / "merged_ckpt_strategy.ckpt")
    transform_checkpoints(
        str(tmp_path / "full"), str(tmp_path / "ms"), "ms", None, merged, output_format="safetensors"
    )
    for rank in range(make_layout(**layout).cards):
        actual = read_bits(tmp_path / "ranks" / f"rank_{rank}" / "model.safetensors")
        assert_same(actual, read_bits(tmp_path / "ms" / f"rank_{rank}" / f"ms{rank}.safetensors"))


@st.composite
def tensor_cases(draw):
    """A layout and a shape that it divides, of 1 to 3 dimensions."""
    dev_matrix = tuple(draw(st.lists(st.integers(1, 3), min_size=1, max_size=3)))
    axes = draw(st.permutations(range(len(dev_matrix))))
    dimensions = draw(st.integers(1, 3))
    tensor_map = tuple(axes[i] if i < len(axes) and draw(st.booleans()) else -1 for i in range(dimensions))
    parts = [1 if axis == -1 else dev_matrix[-1 - axis] for axis in tensor_map]
    replicas = int(np.prod(dev_matrix)) // int(np.prod(parts))
    divisors = [size for size in range(2, replicas + 1) if replicas % size == 0]
    size = draw(st.sampled_from([0, *([-1] if replicas > 1 else []), *divisors]))
    rows = parts[0] * (replicas if size == -1 else max(1, size))
    shape = [rows * draw(st.integers(1, 3)), *(part * draw(st.integers(1, 4)) for part in parts[1:])]
    return TensorLayout(dev_matrix, tensor_map, int(size != 0), size), tuple(shape)


@given(case=tensor_cases(), chunk_bytes=st.integers(1, 200), data=st.data())
def test_equals_plain_numpy_and_merges_back(tmp_path_factory, case, chunk_bytes, data):
    layout, shape = case
    dtype = data.draw(st.sampled_from(["float32", "bfloat16"]))
    folder = tmp_path_factory.mktemp("case")
    full = (
        np.random.default_rng(0)
        .integers(0, 2**16, shape)
        .astype(np.uint32 if dtype == "float32" else np.uint16)
    )
    write_safetensors(folder / "full" / "model.safetensors", {"w": full}, dtype)
    strategy = Strategy({"w": layout}, 1, layout.cards)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("stages.weights.transfer.CHUNK_BYTES", chunk_bytes)
        tensors = {name: as_tensor(stored) for name, stored in open_directory(folder / "full").items()}
        split(tensors, {folder / "ranks": strategy}, None, None)
        for rank in range(layout.cards):
            (part,) = read_bits(folder / "ranks" / f"rank_{rank}" / "model.safetensors").values()
            np.testing.assert_array_equal(part, rank_part(full, layout, rank))
        merged = open_ranks(folder / "ranks", strategy)["w"]
        single = Strategy({"w": TensorLayout((1,), (-1,) * full.ndim, 0, 0)}, 1, 1)
        split({"w": merged}, {folder / "back": single}, None, None)
    (back,) = read_bits(folder / "back" / "rank_0" / "model.safetensors").values()
    np.testing.assert_array_equal(back, full)
    assert read_tensor(merged).shape == shape
    shutil.rmtree(folder)


def test_a_dtype_is_cast(tmp_path, monkeypatch):
    bits = write_hf(tmp_path / "hf", make_model())
    write_strategy(make_model(), make_layout(data_parallel=2), tmp_path / "strategy")
    monkeypatch.setattr("stages.weights.transfer.CHUNK_BYTES", 500)
    split_directory(tmp_path / "hf", tmp_path / "strategy", tmp_path / "out", dtype="float32")
    norm = read_bits(tmp_path / "out" / "rank_1" / "model.safetensors")["model.norm_out.weight"]
    np.testing.assert_array_equal(norm, bits["model.norm.weight"].astype(np.uint32) << 16)


def test_a_source_that_ends_early_is_an_error(tmp_path):
    write_ranks_of(tmp_path, make_model(), model_parallel=2)
    tensors = {name: as_tensor(stored) for name, stored in open_directory(tmp_path / "ranks/rank_0").items()}
    os.truncate(tmp_path / "ranks/rank_0/model.safetensors", 8000)
    with pytest.raises(InputError, match="ended while being read"):
        split(tensors, {tmp_path / "out": read_strategy(tmp_path / "strategy")}, None, None)


@pytest.mark.parametrize(
    ("layers", "message"),
    [
        (3, r"model.layers.3.attention_norm.weight=\[32\]: the strategy does not list"),
        (5, r"model.layers.4.*: the strategy lists this tensor"),
    ],
)
def test_strategy_of_another_model(tmp_path, layers, message):
    write_hf(tmp_path / "hf", make_model())
    write_strategy(make_model(num_hidden_layers=layers), make_layout(model_parallel=2), tmp_path / "other")
    with pytest.raises(InputError, match=message):
        split_directory(tmp_path / "hf", tmp_path / "other", tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir() if "out" in path.name] == []
