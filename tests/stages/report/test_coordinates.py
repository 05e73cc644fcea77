import re

import pytest

from stages.report.coordinates import BOTTOM, LEFT, MAX_KEYS, MAX_LINES, RIGHT, TOP, clip, coordinates
from stages.report.sweep import render
from tests.stages.report.synthetic import sweep_of
from tests.stages.report.test_page import HOSTILE, check


def corners(line):
    return [tuple(map(float, corner.split(","))) for corner in line.path.split()]


def test_each_value_has_its_place_and_accuracy_is_to_scale():
    values = [("1e-3", "b"), ("1e-5", "a"), ("1e-4", "a")]
    points = [
        (i, {"rate": rate, "kind": kind}, accuracy)
        for i, ((rate, kind), accuracy) in enumerate(zip(values, (0.5, 0.4, 0.2), strict=True))
    ]
    drawn = coordinates(["rate", "kind"], points)
    middle = (TOP + BOTTOM) / 2
    lines = [corners(line) for line in (drawn.best, *drawn.lines)]
    assert [[x for x, _ in line] for line in lines] == [[LEFT, (LEFT + RIGHT) / 2, RIGHT]] * 3
    # The larger number is higher, as numbers are ordered (1e-5 < 1e-4 < 1e-3); a stands above b.
    assert [line[0][1] for line in lines] == [TOP, BOTTOM, middle]
    assert [line[1][1] for line in lines] == [BOTTOM, TOP, TOP]
    ends = [line[2][1] for line in lines]
    assert (ends[2] - ends[1]) / (ends[1] - ends[0]) == pytest.approx(2, abs=0.02)  # 20 points of 10
    assert all(TOP <= y <= BOTTOM for y in ends)
    assert [(mark.text, mark.y) for mark in drawn.axes[0].marks] == [
        ("1e-3", TOP), ("1e-4", middle), ("1e-5", BOTTOM),
    ]  # fmt: skip
    assert drawn.best.end.text == "50.0 %, point 0"
    assert "3 points over rate, kind" in drawn.alt and "from 20.0 % to 50.0 %" in drawn.alt
    assert "Best: point 0: rate=1e-3 kind=b: 50.0 %" in drawn.alt


def test_ticks_stand_where_their_accuracy_would():
    drawn = coordinates(["k"], [(1, {"k": "1"}, 0.9), (0, {"k": "0"}, 0.1)])
    high, low = corners(drawn.best)[-1][1], corners(drawn.lines[0])[-1][1]
    ticks = {mark.text: mark.y for mark in drawn.axes[-1].marks}
    step = (low - high) / 8  # px per ten percentage points
    for text, y in ticks.items():
        assert y == pytest.approx(high + step * (90 - float(text[:-2])) / 10, abs=0.2)
    assert len(ticks) >= 3 and all(abs(y - high) > 14 for y in ticks.values())


@pytest.mark.parametrize(
    ("keys", "count"), [([], 3), (["k"], 1), (["k"], 0)], ids=["no key", "one point", "none"]
)
def test_nothing_to_compare_is_not_drawn(keys, count):
    assert coordinates(keys, [(i, {"k": str(i)}, 0.5) for i in range(count)]) is None


def test_equal_accuracies_and_absent_values_can_be_drawn():
    drawn = coordinates(["k"], [(0, {}, 0.5), (1, {"k": "2"}, 0.5)])
    assert corners(drawn.best)[-1] == corners(drawn.lines[0])[-1]
    assert {mark.text for mark in drawn.axes[0].marks} == {"default", "2"}


def test_what_has_no_room_is_counted():
    keys = [f"key{i}" for i in range(MAX_KEYS + 2)]
    points = [(i, dict.fromkeys(keys, str(i)), 1 - i / 999) for i in range(MAX_LINES + 5)]
    drawn = coordinates(keys, points)
    assert (drawn.unkeyed, drawn.undrawn) == (2, 5)
    assert len(drawn.axes) == MAX_KEYS + 1 and len(drawn.lines) == MAX_LINES - 1
    assert max(len(axis.marks) for axis in drawn.axes) <= 12


def test_a_long_key_keeps_its_end_and_a_long_value_its_start():
    keys = ["train.learning_rate_of_the_embedding", *(f"k{i}" for i in range(5))]
    drawn = coordinates(keys, [(i, dict.fromkeys(keys, "long" * 9 + str(i)), i / 9) for i in (1, 0)])
    assert re.fullmatch("….*the_embedding", drawn.axes[0].name)
    assert all(mark.text.startswith("longlong") and mark.text.endswith("…") for mark in drawn.axes[0].marks)
    assert clip("a\nb", 9) == "a b" and clip("x" * 30, 10) == "x" * 9 + "…"


def test_the_page_has_it_once_with_a_line_per_point():
    source = render(**sweep_of(8))
    page = check(source, scripts=1)
    (label,) = (text for text in page.attributes("aria-label") if text.startswith("Parallel coordinates"))
    assert "6 points over train.beta, report.title" in label and "Best: point 1: " in label
    assert source.count("<polyline") == 6, "two of eight have no result"
    lines = re.findall("<polyline [^>]*>", source)
    assert ["var(--c1)" in line for line in lines] == [False] * 5 + [True]  # coloured, above the others


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_values_and_keys_stay_text(text):
    given = sweep_of(8, value=text)
    for point in given["given"]:
        point.chosen[text] = f"{text}{point.number}"
    page = check(render(**given), scripts=1)
    for character in ("\u202e", "\x00", "\x1b", "\u2066"):
        assert character not in page.source
