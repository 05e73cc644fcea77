"""Strategy files: round trip, and refusal of damaged, incomplete or mixed ones."""

import pytest

from stages.base.errors import InputError
from stages.models.tensor_layout import TensorLayout
from stages.weights.strategy.files import encode, read_strategy

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
