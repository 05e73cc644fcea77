import pytest

from stages.base.layout import RoleLayout
from stages.base.reader import read
from stages.models.layouts import parameter_layouts
from stages.models.tensor_layout import slice_of
from stages.report.layout_picture import BAR_W, picture
from tests.stages.report.synthetic import role
from tests.stages.weights.checkpoints import make_model


def test_stages_name_their_layers():
    drawn = picture("train", role(1, 1, pipeline_stage=2, offset=[1, -1]), 8, {})
    assert [box.label for box in drawn.stages] == [
        "stage 0: embedding, layers 0–4",
        "stage 1: layers 5–7, norm, head",
    ]
    unknown = picture("train", role(1, 1, pipeline_stage=3), 8, {})
    assert unknown.stages[1].label == "stage 1: its layers"


def test_nothing_overlaps_and_nothing_leaves_the_drawing():
    drawn = picture("train", role(4, 16), 8, {})
    spots = [(card.x, card.y) for card in drawn.cards]
    assert len(set(spots)) == 64
    for i, (x, y) in enumerate(spots):
        assert 0 <= x <= drawn.width - 104 and 0 <= y <= drawn.height - 62
        assert all(abs(x - a) >= 104 or abs(y - b) >= 62 for a, b in spots[:i])


def test_bytes_stand_on_the_card():
    drawn = picture("generate", role(1, 2), 4, {1: "3.1 MiB"})
    assert [card.label for card in drawn.cards] == ["1/2", "3.1 MiB"]


@pytest.mark.parametrize("values", [{}, role(0, 1), {**role(1, 1), "surprise": 1}, role(65, 1)])
def test_no_drawing_of_what_is_no_layout(values):
    assert picture("train", values, 4, {}) is None


@pytest.mark.parametrize("shard_size", [None, -1, 2, 3])
@pytest.mark.parametrize(
    ("dp", "mp", "pp", "cp"), [(4, 2, 2, 1), (2, 2, 1, 2), (2, 2, 2, 2), (4, 1, 3, 1), (1, 4, 1, 1)]
)
def test_the_picture_agrees_with_the_strategy_files(dp, mp, pp, cp, shard_size):
    values = role(dp, mp, pipeline_stage=pp, context_parallel=cp, parallel_optimizer_threshold_kb=0,
                  enable_parallel_optimizer=bool(shard_size), optimizer_weight_shard_size=shard_size or -1,
                  offset=[1] + [0] * (pp - 2) + [-1] if pp > 1 else [])  # fmt: skip
    rows, layers = 1024, 6
    layout = read(RoleLayout, values)
    shape = make_model(
        hidden_size=64, num_hidden_layers=layers, intermediate_size=rows, num_attention_heads=4
    )
    stages = parameter_layouts(shape, layout)
    drawn = picture("train", values, layers, {})
    per_stage = len(drawn.cards) // pp
    for card in drawn.cards:
        tensors = stages[card.rank // per_stage]
        held = {name: item for name, item in tensors.items() if name.endswith("w1.weight")}
        for name, item in held.items():
            part = slice_of(item, (rows, 64), card.rank)[0]
            assert (part.start, part.stop) == pytest.approx(
                (rows * card.start / BAR_W, rows * (card.start + card.width) / BAR_W)
            ), (card.rank, name)
        numbers = [int(name.split(".")[2]) for name in held]
        span = drawn.stages[card.rank // per_stage].label
        assert span.split("layer")[1].lstrip("s ").split(",")[0] == (
            f"{min(numbers)}–{max(numbers)}" if len(numbers) > 1 else str(numbers[0])
        )


def test_each_card_shows_its_memory_below_its_weights_where_that_is_known():
    weights, peaks = {0: "1 MiB", 1: "2 MiB"}, {0: "peak 1.00 GiB", 1: "peak 2.50 GiB"}
    plain, drawn = (picture("train", role(2, 1), 4, weights, given) for given in (None, peaks))
    assert [(card.label, card.memory) for card in drawn.cards] == list(
        zip(weights.values(), peaks.values(), strict=True)
    )
    assert [card.memory for card in plain.cards] == ["", ""]
    more = drawn.card_height - plain.card_height
    assert more > 0 and drawn.height - plain.height == more
