from fractions import Fraction

import numpy as np
import pytest

from stages.report.layout_picture import BAR_W, picture
from tests.stages.report.synthetic import role

LAYOUTS = [(1, 1, 1, 1), (2, 4, 1, 1), (4, 1, 1, 1), (1, 2, 4, 1), (2, 2, 2, 2), (1, 4, 1, 2), (8, 8, 1, 1)]


@pytest.mark.parametrize("sharded", [False, True])
@pytest.mark.parametrize(("dp", "mp", "pp", "cp"), LAYOUTS)
def test_slices_follow_the_device_matrix(dp, mp, pp, cp, sharded):
    values = role(dp, mp, pipeline_stage=pp, context_parallel=cp, enable_parallel_optimizer=sharded)
    drawn = picture("train", values, 8, {})
    # MindSpore's arrangement written down independently: ranks laid out as an array, last axis fastest.
    ranks = np.arange(dp * mp * pp * cp).reshape(pp, dp * cp, mp)
    assert sorted(card.rank for card in drawn.cards) == list(range(dp * mp * pp * cp))
    parts = mp * (dp * cp if sharded else 1)
    for card in drawn.cards:
        (_, copy, m) = (int(axis[0]) for axis in np.nonzero(ranks == card.rank))
        expected = Fraction(m, mp) + (Fraction(copy, parts) if sharded else 0)
        assert card.start == pytest.approx(BAR_W * float(expected))
        assert card.width == pytest.approx(BAR_W / parts)


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


def test_bytes_stand_on_the_card_and_facts_in_the_alt_text():
    drawn = picture("generate", role(1, 2), 4, {1: "3.1 MiB"})
    assert [card.label for card in drawn.cards] == ["1/2", "3.1 MiB"]
    assert "cut into 2 slices" in drawn.alt and "2 card(s)" in drawn.alt


@pytest.mark.parametrize("values", [{}, role(0, 1), {**role(1, 1), "surprise": 1}, role(65, 1)])
def test_no_drawing_of_what_is_no_layout(values):
    assert picture("train", values, 4, {}) is None
