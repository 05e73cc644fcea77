"""merge(split(x)) is x; incomplete rank directories are refused."""

import json
import shutil

import pytest

from stages.base.errors import InputError
from stages.weights.complete import merge_directory
from stages.weights.names import name_map
from tests.stages.weights.checkpoints import (
    assert_same,
    make_model,
    read_bits,
    read_directory,
    write_ranks_of,
    write_safetensors,
)

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


def test_merge_equals_mindspore_and_the_source(ranks, transform_checkpoints):
    _merge(ranks)
    merged = str(ranks / "strategy" / "merged_ckpt_strategy.ckpt")
    transform_checkpoints(
        str(ranks / "ranks"), str(ranks / "ms"), "t", merged, None, output_format="safetensors"
    )
    assert_same(read_directory(ranks / "out"), read_bits(ranks / "ms" / "rank_0" / "t0.safetensors"))
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
