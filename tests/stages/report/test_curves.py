import random
import statistics
from xml.etree import ElementTree

import pytest

from stages.report.curves import GRPO, SFT, draw_all, half_widths, points, smooth, thin
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


@pytest.mark.parametrize("needed", ["reward_std", "sampled_groups"])
def test_the_band_is_there_only_with_a_spread_and_a_number_of_groups(needed):
    bare = [{key: value for key, value in row.items() if key != needed} for row in metrics()]
    with_band, without = (draw_all(GRPO[:1], rows, "g")[0].svg for rows in (metrics(), bare))
    assert with_band.count("fill-opacity: 0.13") == 1 and "fill-opacity: 0.13" not in without


def test_the_band_holds_the_true_mean_19_times_of_20():
    """Groups with means of their own, as prompts have: 95 % or more, since the spread is an upper bound."""
    draw, rows = random.Random(0), []
    for step in range(2000):
        levels = [draw.random() for _ in range(32)]  # how hard each prompt is; the true mean is 1/2
        answers = [float(draw.random() < level) for level in levels for _ in range(8)]
        spread = statistics.pstdev(answers)
        rows.append(
            {"step": step, "reward": statistics.fmean(answers), "reward_std": spread, "sampled_groups": 32}
        )
    for share in (False, True):
        widths = dict(half_widths(rows, "reward", share))
        held = sum(abs(row["reward"] - 0.5) <= widths[row["step"]] for row in rows) / len(rows)
        assert 0.95 <= held < 1.0
        assert widths[0] == pytest.approx(1.96 * rows[0]["reward_std"] / 32**0.5)
    alike = [{"step": 0, "reward": 0.5, "sampled_groups": 32, "reward_std": 0.5}]
    assert half_widths(alike, "reward", False) == [(0, pytest.approx(0.1732, abs=1e-4))]


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
