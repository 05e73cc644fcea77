"""split against MindSpore's own transform; merge(split(x)) is x; damaged inputs."""

import json
import os
import shutil
import sys

import numpy as np
import pytest

from stages.base.errors import InputError
from stages.weights.complete import merge_directory
from stages.weights.convert import convert_directory
from stages.weights.names import name_map
from stages.weights.sources import as_tensor, open_directory
from stages.weights.split import split, split_directory
from stages.weights.strategy.files import read_strategy
from stages.weights.strategy.stage import write_strategy
from tests.stages.weights.checkpoints import (
    assert_same,
    make_layout,
    make_model,
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


@pytest.fixture
def transform_checkpoints(monkeypatch):
    """MindSpore's. Its children pickle what no module names, and so ask every module for it by getattr.

    Those of transformers import half a library then, or fail for a package that is not there.
    """
    mindspore = pytest.importorskip("mindspore")
    for name in list(sys.modules):
        if name.partition(".")[0] == "transformers":
            monkeypatch.delitem(sys.modules, name)
    return mindspore.transform_checkpoints


@pytest.mark.parametrize(("layout", "qkv_concat", "dtype"), CASES)
def test_equals_mindspore(tmp_path, monkeypatch, transform_checkpoints, layout, qkv_concat, dtype):
    """ms.transform_checkpoints cuts a complete checkpoint by our strategy file into the same bytes."""
    monkeypatch.setattr("stages.weights.transfer.CHUNK_BYTES", 500)
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


LAYOUT = {
    "data_parallel": 2, "model_parallel": 2, "pipeline_stage": 2, "enable_parallel_optimizer": True,
    "parallel_optimizer_threshold_kb": 0,
}  # fmt: skip
BIAS = "model.layers.0.attention.wq.bias"


@pytest.fixture
def ranks(tmp_path):
    write_ranks_of(tmp_path, make_model(), **LAYOUT)
    return tmp_path


def _merge(folder):
    merge_directory(folder / "ranks", folder / "strategy", folder / "out")


def _change_rank_3(folder, change):
    file = folder / "ranks" / "rank_3" / "model.safetensors"
    bits = read_bits(file)
    change(bits)
    write_safetensors(file, bits, "bfloat16")


def _source(folder):
    """The bits of the Hugging Face directory under mindformers' names."""
    bits = read_bits(folder / "hf" / "model.safetensors")
    return {name: bits[part] for name, (part,) in name_map(make_model()).items()}


def test_merge_gives_the_source(ranks, monkeypatch):
    monkeypatch.setattr("stages.weights.transfer.CHUNK_BYTES", 500)
    _merge(ranks)
    assert_same(read_directory(ranks / "out"), _source(ranks))


def test_sharded_by_size(ranks, monkeypatch):
    monkeypatch.setattr("stages.weights.complete.SHARD_BYTES", 20_000)
    _merge(ranks)
    assert_same(read_directory(ranks / "out"), _source(ranks))
    files = json.loads((ranks / "out" / "param_name_map.json").read_text())
    written = sorted((ranks / "out").glob("*.safetensors"))
    assert {name: file.name for file in written for name in read_bits(file)} == files
    sizes = [file.stat().st_size for file in written]
    assert len(sizes) > 2 and max(sizes) < 25_000  # 20,000 and a header


def test_a_single_replica_is_sufficient(tmp_path):
    write_ranks_of(tmp_path, make_model(), data_parallel=2, model_parallel=2)
    for rank in (2, 3):  # the second replica
        shutil.rmtree(tmp_path / "ranks" / f"rank_{rank}")
    _merge(tmp_path)
    assert_same(read_directory(tmp_path / "out"), _source(tmp_path))


def _replace_merged(root, rank):
    content = (root / f"strategy/ckpt_strategy_rank_{rank}.ckpt").read_bytes()
    (root / "strategy/merged_ckpt_strategy.ckpt").write_bytes(content)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda root: shutil.rmtree(root / "ranks/rank_5"), r"only \d+ of \d+ elements are present"),
        (
            lambda root: _change_rank_3(root, lambda bits: bits.update({BIAS: bits[BIAS][:-1]})),
            rf"rank_3/model.safetensors: {BIAS}=\[15\]: its shape",
        ),
        (
            lambda root: _change_rank_3(root, lambda bits: bits.update(unknown=bits[BIAS])),
            "model.safetensors: unknown: the strategy does not list this tensor",
        ),
        (lambda root: (root / "ranks/rank_0/2.safetensors").write_bytes(b""), "must hold one weight file"),
        (lambda root: shutil.rmtree(root / "ranks"), "holds no rank_K directory"),
        (lambda root: _replace_merged(root, 4), "a pipeline stage's strategy is missing"),
        (lambda root: _replace_merged(root, 0), "the strategy has 4 ranks"),
    ],
)
def test_damaged_ranks_are_refused(ranks, damage, message):
    damage(ranks)
    with pytest.raises(InputError, match=message):
        _merge(ranks)
    assert not (ranks / "out").exists()


def test_checkpoints_saved_without_redundancy(tmp_path):
    """MindSpore's remove_redundancy: of equal slices one rank has one, and the metadata says so."""
    write_ranks_of(tmp_path, make_model(), data_parallel=2, model_parallel=2)
    metadata = {"format": "ms", "remove_redundancy": "True"}
    for rank in range(4):
        file = tmp_path / "ranks" / f"rank_{rank}" / "model.safetensors"
        bits = sorted(read_bits(file).items())
        retained = {name: array for i, (name, array) in enumerate(bits) if i % 2 == rank // 2}
        write_safetensors(file, retained, "bfloat16", metadata)
    _merge(tmp_path)
    assert_same(read_directory(tmp_path / "out"), _source(tmp_path))
