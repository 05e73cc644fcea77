import random
from xml.etree import ElementTree

import pytest

from stages.report.curves import GRPO, SFT, draw_all, points, smooth, thin
from tests.stages.report.synthetic import metrics, warmup


def test_points_keep_the_later_of_a_repeated_step_and_drop_what_is_no_number():
    rows = [{"step": 1, "kl": 1.0}, {"step": 2, "kl": 2.0}, {"step": 2, "kl": 3.0},
            {"step": 3, "kl": None}, {"step": 4, "kl": float("nan")},
            {"step": 0, "kl": 5}, {"kl": 1}, {"step": "x", "kl": 1}]  # fmt: skip
    assert points(rows, "kl") == [(0, 5), (1, 1), (2, 3)]


def test_thinning_keeps_the_mean_and_smoothing_keeps_a_line():
    draw = random.Random(3)
    found = [(float(i), draw.random()) for i in range(4000)]
    thinned = thin(found)
    assert len(thinned) == 400
    assert sum(y for _, y in thinned) / 400 == pytest.approx(sum(y for _, y in found) / 4000)
    line = [(float(i), 3.0 * i) for i in range(100)]
    assert [y for _, y in smooth(line)] == pytest.approx([y for _, y in line])


def test_every_figure_is_drawn_with_its_numbers_in_words():
    drawings = draw_all(GRPO, metrics(), "g") + draw_all(SFT, warmup(), "s")
    assert [d.title for d in drawings] == [spec.title for spec in GRPO + SFT]
    for drawing in drawings:
        root = ElementTree.fromstring(drawing.svg)
        assert root.get("role") == "img"
        assert any(f"at step {last}" in root.get("aria-label") for last in (80, 150))
        assert "#0101" not in drawing.svg and "#0102" not in drawing.svg, "a placeholder colour was left"
    assert [label for _, label in drawings[2].legend] == ["accuracy", "answer format"]


def test_the_band_is_there_only_with_a_spread():
    bare = [{key: value for key, value in row.items() if key != "reward_std"} for row in metrics()]
    with_band, without = (draw_all(GRPO[:1], rows, "g")[0].svg for rows in (metrics(), bare))
    assert with_band.count("fill-opacity: 0.13") == 1 and "fill-opacity: 0.13" not in without


@pytest.mark.parametrize(
    "values", [[0.5], [0.0, 0.0], [1e300, -1e300], [1e-300, 2e-300], [float("nan"), 1.0]]
)
def test_odd_values_can_be_drawn(values):
    rows = [{"step": i, "reward": v, "accuracy": v, "reward_std": v} for i, v in enumerate(values)]
    drawings = draw_all(GRPO, rows, "g")
    assert drawings
    for drawing in drawings:
        assert ElementTree.fromstring(drawing.svg).tag.endswith("svg")


def test_no_rows_no_figures():
    assert draw_all(GRPO, [], "g") == []
