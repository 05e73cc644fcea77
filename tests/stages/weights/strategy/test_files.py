"""Strategy files: round trip, damaged ones, and field by field those of MindSpore, which reads them, too."""

import pytest

from stages.base.errors import InputError
from stages.models.tensor_layout import TensorLayout
from stages.weights.strategy.files import encode, read_strategy
from stages.weights.strategy.stage import write_strategy
from tests.stages.weights.checkpoints import make_layout, make_model
from tests.stages.weights.strategy.golden import RAW, cases, fields, load

FULL = TensorLayout((2,), (-1,), 0, 0)
SPLIT = TensorLayout((2,), (0,), 0, 0)


def test_round_trip(tmp_path):
    tensors = {"a": TensorLayout((2, 4), (0, -1), 4, -1, (1,)), "b": TensorLayout((4, 2), (-1,), 0, 0, (1,))}
    stages = {0: {"c": TensorLayout((8,), (), 0, 0)}, 1: tensors}
    (tmp_path / "m.ckpt").write_bytes(encode(stages, prefixed=True))
    strategy = read_strategy(tmp_path / "m.ckpt")
    assert {name: strategy.tensors[name] for name in tensors} == tensors
    assert (strategy.stages, strategy.ranks) == (2, 16)
    assert strategy.holds("a", 8) and not strategy.holds("a", 7) and strategy.holds("c", 7)


def test_a_tensor_in_several_stages(tmp_path):
    (tmp_path / "m.ckpt").write_bytes(encode({0: {"a": SPLIT}, 1: {"a": SPLIT}}, prefixed=True))
    assert read_strategy(tmp_path / "m.ckpt").tensors["a"].stages == (0, 1)


@pytest.mark.parametrize(
    ("content", "rule"),
    [
        (encode({0: {}}), "lists no parameter"),
        (encode({0: {"a": TensorLayout((2,), (1,), 0, 0)}}), "tensor_map .* does not fit"),
        (encode({0: {"a": TensorLayout((2, 2), (1, 1), 0, 0)}}), "tensor_map .* does not fit"),
        (encode({0: {"a": TensorLayout((2, 2), (-2,), 0, 0)}}), "tensor_map .* does not fit"),
        (encode({0: {"a": TensorLayout((2, 0), (-1,), 0, 0)}}), "no cards"),
        (encode({0: {"a": SPLIT, "b": TensorLayout((4,), (-1,), 0, 0)}}), "disagree on the number of cards"),
        (encode({1: {"a": SPLIT}}), "a pipeline stage's strategy is missing"),
        # two tensor_maps, of a dimension that is split along two axes
        (
            encode({0: {"a": SPLIT}}).replace(b"\x12\x02\x08\x00\x1a\x00", b"\x12\x00\x12\x00\x1a\x00"),
            "two axes",
        ),
    ],
)
def test_malformed_files(tmp_path, content, rule):
    file = tmp_path / "ckpt_strategy_rank_0.ckpt"
    file.write_bytes(content)
    with pytest.raises(InputError, match=rule):
        read_strategy(file)


def test_ranks_of_different_runs_are_refused(tmp_path):
    (tmp_path / "ckpt_strategy_rank_0.ckpt").write_bytes(encode({0: {"a": SPLIT}}))
    (tmp_path / "ckpt_strategy_rank_1.ckpt").write_bytes(encode({0: {"a": FULL}}))
    with pytest.raises(InputError, match="two ranks of stage 0 disagree"):
        read_strategy(tmp_path)


@pytest.mark.parametrize("file", cases(), ids=lambda file: file.stem)
def test_golden(file, tmp_path):
    """Both this project's reader and MindSpore's find the golden layouts in the written files."""
    serialization = pytest.importorskip("mindspore.parallel._parallel_serialization")
    model, layout, expected = load(file)
    write_strategy(model, layout, tmp_path)
    assert fields(read_strategy(tmp_path / "merged_ckpt_strategy.ckpt")) == expected
    (tmp_path / "merged_ckpt_strategy.ckpt").unlink()
    assert fields(read_strategy(tmp_path)) == expected
    cards = layout.cards // layout.pipeline_stage
    for stage, parameters in expected.items():
        rank_file = tmp_path / f"ckpt_strategy_rank_{int(stage) * cards}.ckpt"
        tensors = serialization._build_protobuf_strategy(str(rank_file))
        weights = {name: tensor for name, tensor in tensors.items() if not name.startswith("adam_")}
        assert {name: _fields(tensor) for name, tensor in weights.items()} == parameters
        states = {state + name for name in parameters for state in ("adam_m.", "adam_v.")}
        assert tensors.keys() == weights.keys() | states


def _fields(layout):
    assert layout.field == 0
    assert len(layout.param_split_shape) == len(layout.indices_offset) == 1
    return {
        "dev_matrix": list(layout.dev_matrix[0].dim),
        "tensor_map": list(layout.tensor_map[0].dim),
        "opt_weight_shard_step": layout.opt_weight_shard_step,
        "opt_weight_shard_size": layout.opt_weight_shard_size,
    }


def test_the_merged_file_equals_the_file_that_mindspore_merges(tmp_path):
    mindspore = pytest.importorskip("mindspore")
    layout = make_layout(data_parallel=2, model_parallel=2, pipeline_stage=2)
    write_strategy(make_model(), layout, tmp_path / "ranks")
    merged = (tmp_path / "ranks" / "merged_ckpt_strategy.ckpt").rename(tmp_path / "merged.ckpt")
    mindspore.merge_pipeline_strategys(str(tmp_path / "ranks"), str(tmp_path / "theirs.ckpt"))
    assert read_strategy(merged) == read_strategy(tmp_path / "theirs.ckpt")
    assert merged.stat().st_size == (tmp_path / "theirs.ckpt").stat().st_size


def test_reads_the_raw_files_of_mindspore():
    *_, expected = load(next(file for file in cases() if file.stem == "d1m2p2"))
    strategy = read_strategy(RAW)
    assert (strategy.stages, strategy.cards_per_stage, strategy.ranks) == (2, 2, 4)
    assert fields(strategy) == expected
    assert strategy.tensors["adam_m.lm_head.weight"] == strategy.tensors["lm_head.weight"]


MINDRLHF = {
    "train": ("train_policy", "grpo_model_train.policy_model.model."),
    "generate": ("infer_policy", "grpo_model.policy_model.model."),
    "reference": ("infer_ref", "model."),
}


def test_mindrlhf_names(tmp_path):
    layout = make_layout(model_parallel=2, pipeline_stage=2)
    write_strategy(make_model(), layout, tmp_path / "plain")
    for role, (name, prefix) in MINDRLHF.items():
        write_strategy(make_model(), layout, tmp_path, role=role)
        ranks = tmp_path / f"{name}_strategy"
        merged = tmp_path / "merge_strategy" / f"{name}_merged_strategy.ckpt"
        assert {file.name for file in ranks.iterdir()} == {f"strategy_{rank}.ckpt" for rank in range(4)}
        for stored in ("model.norm_out.weight", "lm_head.weight"):
            for state in ("", "adam_m.", "adam_v."):
                assert f"{state}{prefix}{stored}".encode() in merged.read_bytes()
        assert read_strategy(merged) == read_strategy(ranks) == read_strategy(tmp_path / "plain")
    with pytest.raises(InputError, match="holds several roles' strategies"):
        read_strategy(tmp_path)
