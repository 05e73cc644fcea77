import base64
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from stages.report import curves
from stages.report.curves import GRPO, SFT, draw_all, half_widths, points
from stages.report.figures import COLOURS
from tests.stages.report.synthetic import metrics, warmup


def parsed(drawing):
    """The elements of a figure; raises ParseError if they are not well-formed."""
    return ElementTree.fromstring(base64.b64decode(drawing.image.partition("base64,")[2]))


def test_points_keep_the_later_of_a_repeated_step_and_drop_what_is_no_number():
    rows = [{"step": 1, "kl": 1.0}, {"step": 2, "kl": 2.0}, {"step": 2, "kl": 3.0},
            {"step": 3, "kl": None}, {"step": 4, "kl": float("nan")},
            {"step": 0, "kl": 5}, {"kl": 1}, {"step": "x", "kl": 1}]  # fmt: skip
    assert points(rows, "kl") == [(0, 5), (1, 1), (2, 3)]


def test_every_figure_has_its_curve_in_the_first_colour_and_its_numbers_in_words():
    drawings = draw_all(GRPO, metrics()) + draw_all(SFT, warmup())
    assert [d.title for d in drawings] == [spec.title for spec in GRPO + SFT]
    for drawing in drawings:
        styles = [node.get("style", "") for node in parsed(drawing).iter()]
        assert any(f"stroke: {COLOURS[0]}" in style for style in styles)
        assert any(f"at step {last}" in drawing.alt for last in (80, 150))
    assert [label for _, label in drawings[2].legend] == ["accuracy", "answer format"]
    assert drawings == draw_all(GRPO, metrics()) + draw_all(SFT, warmup()), "the same run gives other bytes"


def test_more_lines_than_colours_are_all_drawn():
    names = [f"reward/f{i}" for i in range(len(COLOURS) + 1)]
    rows = [{"step": step, **dict.fromkeys(names, 0.5)} for step in (1, 2)]
    (drawing,) = draw_all(GRPO, rows)
    assert [index for index, _ in drawing.legend] == [1, 2, 3, 4, 5, 6, 1]
    lines = [node.get("style", "") for node in parsed(drawing).iter() if node.tag.endswith("path")]
    lines = [style for style in lines if style.startswith("fill: none") and "stroke-width: 1.9" in style]
    assert [sum(colour in line for line in lines) for colour in COLOURS] == [2, 1, 1, 1, 1, 1]


def test_legends_have_the_colours_of_the_figures():
    style = (Path(curves.__file__).parent / "style.css").read_text(encoding="utf-8")
    assert re.findall(r"--k: (#\w+)", style) == list(COLOURS)


def test_a_band_is_two_standard_errors_wide_on_each_side():
    rows = [{"step": 1, "reward": 0.5, "reward_stderr": 0.1, "reward_stderr/accuracy": 0.2}]
    assert half_widths(rows, "reward") == [(1, 0.2)]
    assert half_widths(rows, "reward/accuracy") == [(1, 0.4)]
    assert half_widths(rows, "kl") == []


@pytest.mark.parametrize(
    "values", [[0.5], [0.0, 0.0], [1e300, -1e300], [1e-300, 2e-300], [float("nan"), 1.0]]
)
def test_odd_values_can_be_drawn(values):
    rows = [{"step": i, "reward": v, "accuracy": v, "reward_stderr": v} for i, v in enumerate(values)]
    for drawing in draw_all(GRPO, rows):
        assert len(parsed(drawing)) > 0
    assert draw_all(GRPO, rows) and draw_all(GRPO, []) == []
