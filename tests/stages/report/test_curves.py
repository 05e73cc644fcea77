"""Curves, the readings below them, text and numbers, and what explains the results of a sweep."""

import base64
import csv
import itertools
import random
import re
import unicodedata
from pathlib import Path
from urllib.parse import unquote
from xml.etree import ElementTree

import numpy as np
import pytest

from stages.report import curves
from stages.report.artifacts import Artifacts
from stages.report.curves import (
    COLOURS,
    GRPO,
    HEIGHT,
    MAX_ROWS,
    SFT,
    band,
    csv_link,
    draw_all,
    half_widths,
    points,
    readings,
    span,
)
from stages.report.details import differences, verdict, verdicts
from stages.report.headline import tiles
from stages.report.sweep import BOTTOM, MAX_DRAWN, TOP, Measured, importances, parallel
from stages.report.text import figure, neutral
from tests.stages.report.synthetic import EVALUATION, metrics, warmup


def parsed(drawing):
    """The elements of a figure; raises ParseError if they are not well-formed."""
    return ElementTree.fromstring(base64.b64decode(drawing.image.partition("base64,")[2]))


def test_points_keep_the_later_of_a_repeated_step_and_drop_what_is_no_number():
    rows = [{"step": 1, "kl": 1.0}, {"step": 2, "kl": 2.0}, {"step": 2, "kl": 3.0},
            {"step": 3, "kl": None}, {"step": 4, "kl": float("nan")},
            {"step": 0, "kl": 5}, {"kl": 1}, {"step": "x", "kl": 1}]  # fmt: skip
    assert points(rows, "kl") == [(0, 5), (1, 1), (2, 3)]
    rows = [{"step": 1, "reward": 0.5, "reward_stderr": 0.1, "reward_stderr/accuracy": 0.2}]
    for name, expected in (("reward", [(1, 0.2)]), ("reward/accuracy", [(1, 0.4)]), ("kl", [])):
        assert half_widths(rows, name) == expected, "two standard errors"


def test_every_figure_has_its_curve_in_the_first_colour_and_its_numbers_in_words():
    drawings = draw_all(GRPO, metrics()) + draw_all(SFT, warmup())
    assert [d.title for d in drawings] == [spec.title for spec in GRPO + SFT]
    for drawing in drawings:
        styles = [node.get("style", "") for node in parsed(drawing).iter()]
        assert any(f"stroke: {COLOURS[0]}" in style for style in styles)
        assert any(f"at step {last}" in drawing.alt for last in (80, 150))
    assert [label for _, label in drawings[2].legend] == ["accuracy", "answer format"]
    style = (Path(curves.__file__).parent / "style.css").read_text(encoding="utf-8")
    assert re.findall(r"--k: (#\w+)", style) == list(COLOURS), "legends have other colours"
    assert drawings == draw_all(GRPO, metrics()) + draw_all(SFT, warmup()), "the same run gives other bytes"


def read_csv(link):
    """The rows of a link's CSV file."""
    return list(csv.reader(unquote(link.removeprefix("data:text/csv;charset=utf-8,")).splitlines()))


def test_long_runs_have_means_over_neighbouring_steps():
    draw = random.Random(4)
    curve = [(float(step), draw.random()) for step in range(1, 4 * MAX_ROWS + 1)]
    lines = read_csv(csv_link("Loss", {"loss": curve}))[1:]
    expected = [sum(y for _, y in curve[i : i + 4]) / 4 for i in range(0, len(curve), 4)]
    assert [float(line[1]) for line in lines] == pytest.approx(expected, rel=1e-5)
    assert [line[0] for line in lines[:2]] == ["2.5", "6.5"]
    (_, every) = read_csv(csv_link("Loss", {"loss": curve[:1]}))
    assert [float(value) for value in every] == pytest.approx([1, curve[0][1]], rel=1e-5)
    first, *_, last = readings({"loss": curve}, span([curve]), figure, 100)
    assert first.steps == "step 1 to 20, means" and last.steps == "step 1,981 to 2,000, means"
    assert last.values == ((0, "", figure(sum(y for _, y in curve[-20:]) / 20)),)


def sweep(count, seed=5):
    draw = random.Random(seed)
    return [
        Measured(i, {"a": f"{draw.choice((1, 10, 2))}", "b": draw.choice(("x", "y"))}, draw.random())
        for i in range(count)
    ]


def test_eta_squared_is_what_the_variance_within_groups_leaves():
    points = sweep(60)
    results = np.array([point.result for point in points])
    for each in importances(points, ["a", "b"]):
        values = np.array([point.chosen[each.key] for point in points])
        fitted = np.array([results[values == value].mean() for value in values])
        assert each.eta_squared == pytest.approx(1 - np.var(results - fitted) / np.var(results))
        assert dict(each.means) == pytest.approx(
            {value: results[values == value].mean() for value in set(values)}
        )


def test_the_figure_by_chance_is_the_mean_over_all_assignments_of_results():
    points = sweep(6)
    results = [point.result for point in points]
    shares = []
    for order in itertools.permutations(results):
        shuffled = [Measured(p.number, p.chosen, y) for p, y in zip(points, order, strict=True)]
        shares.append(importances(shuffled, ["a"])[0].eta_squared)
    assert importances(points, ["a"])[0].by_chance == pytest.approx(np.mean(shares))


@pytest.mark.parametrize("results", [[], [0.5], [0.4, 0.5], [0.5, 0.5, 0.5]])
def test_too_few_or_equal_results_have_no_importance(results):
    assert importances([Measured(i, {"a": str(i)}, y) for i, y in enumerate(results)], ["a"]) == []


def test_lines_meet_their_values_on_each_axis():
    points = sorted(sweep(1000), key=lambda point: -point.result)
    axes, lines = parallel(points, ["a", "b"])
    assert [value for _, value in axes[0].ticks] == ["1", "2", "10"] and len(axes) == 3
    assert 0 < len(lines) <= MAX_DRAWN and lines[0].opacity == 1 > lines[-1].opacity
    heights = [{value: y for y, value in axis.ticks} for axis in axes[:2]]
    for line, point in zip(lines, points[:: -(-1000 // MAX_DRAWN)], strict=True):
        corners = [tuple(map(float, corner.split(","))) for corner in line.path.split()]
        expected = [heights[0][point.chosen["a"]], heights[1][point.chosen["b"]]]
        assert [y for _, y in corners[:2]] == pytest.approx(expected, abs=0.05)
        assert TOP <= corners[2][1] <= BOTTOM and f"point {point.number}: " in line.title
    assert float(lines[0].path.split(",")[-1]) == TOP


BIDI = {"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"}


def test_neutral_leaves_no_control_or_direction_character_of_all_unicode():
    shown = neutral("".join(chr(code) for code in range(0x110000)))
    left = {
        c
        for c in set(shown)
        if unicodedata.bidirectional(c) in BIDI or unicodedata.category(c) in ("Cc", "Cs")
    }
    assert left == {"\t", "\n"}
    shown.encode("utf-8")


@pytest.mark.parametrize("text", ["#### 7", "中文 ñ é 👩‍👩‍👧 שלום مرحبا", "a\tb\nc", "x² ≤ 3"])
def test_neutral_keeps_ordinary_text(text):
    assert neutral(text) == text


@pytest.mark.parametrize(
    ("value", "shown"),
    [(0, "0"), (12345, "12,345"), (0.5, "0.500"), (-0.0123, "−0.0123"), (3e-5, "3.00e-5"),
     (1234.5, "1,234"), (99.96, "100.0"), (-2, "−2"), (10_000_000, "10,000,000"),
     (-123_456_789, "−123,456,789"),
     (float("nan"), "–"), (None, "–"), (True, "–"),
     ("7", "–"), (1e300, "1e+300")],
)  # fmt: skip
def test_figure(value, shown):
    assert figure(value) == shown


def test_tiles_show_accuracy_gain_and_pass_at_k():
    shown = {tile.label: tile for tile in tiles(EVALUATION, with_sft=True)}
    assert list(shown) == ["Before GRPO, after sft", "After GRPO", "Gain", "pass@8"]
    assert shown["After GRPO"].value == "74.3 %" and shown["pass@8"].value == "91.4 %"
    # 1.96 * sqrt((0.512 * 0.488 + 0.743 * 0.257) / 1000) = 0.0411
    assert (shown["Gain"].value, shown["Gain"].detail) == ("+23.1", "percentage points, ± 4.1")


def test_the_interval_is_wilsons():
    # Published example: 50 of 100 gives 0.4038 to 0.5962 (Agresti and Coull 1998).
    shown = tiles({"accuracy_sft": 0.5, "prompts": 100}, with_sft=False)
    assert [tile.label for tile in shown] == ["Before GRPO"]
    assert shown[0].detail.startswith("40.4 to 59.6 %")


def test_differences_from_the_defaults(run):
    loaded = Artifacts.load(run)
    config = loaded.config()
    defaults = {name: config[name] for name in ("model", "dataset", "layout", "rollout", "reward")}
    changed = {**defaults, "train": {**config["train"], "steps": 3}, "seed": 7, "unread": {"a": 1}}
    assert differences(loaded, changed) == [("seed", "0", "7"), ("train.steps", "80", "3")]


@pytest.mark.parametrize("recorded", [True, False])
def test_verdicts_tell_right_from_right_and_wrong_from_wrong(recorded):
    def row(before, after):
        if recorded:  # the rewards do not matter
            return {"before_right": before, "after_right": after, "before_reward": 1, "after_reward": 0}
        return {
            f"{side}_parts": {"accuracy": float(right)}
            for side, right in (("before", before), ("after", after))
        }

    pairs = ((False, True), (True, False), (True, True), (False, False))
    assert [verdict(row(*pair)) for pair in pairs] == ["fixed", "broken", "both right", "both wrong"]
    rows = [row(*pair) for pair, count in zip(pairs, (3, 1, 0, 12), strict=True) for _ in range(count)]
    assert verdicts(rows) == "3 fixed, 1 broken, 0 both right, 12 both wrong"
    assert verdicts(rows[:1]) == "1 fixed, 0 broken, 0 both right, 0 both wrong"


@pytest.mark.parametrize("row", [{}, {"before_right": True}, {"before_reward": 0, "after_reward": 1}])
def test_rows_that_do_not_say_what_is_right_have_no_verdict(row):
    assert verdict(row) == "" and verdicts([row]) == ""


@pytest.mark.parametrize(
    ("mean", "error", "trials"),
    [(0.5, 0.05, 100), (0.02, 0.07, 4), (0.9, 0.03, 100), (0.0, 0.0, 32), (1.0, 0.0, 32), (0.5, 0.0, 32)],
)
def test_the_band_of_a_share_contains_it_and_stays_a_share(mean, error, trials):
    rows = [{"step": 1, "accuracy": mean, "accuracy_stderr": error, "sampled_groups": 32.0}]
    ((step, lower),), ((_, upper),) = band(rows, "accuracy", share=True)
    assert step == 1 and 0 <= lower <= mean <= upper <= 1 and lower < upper
    for edge in (lower, upper):  # Wilson's edges are two of their own standard errors away
        assert abs(edge - mean) == pytest.approx(2 * (edge * (1 - edge) / trials) ** 0.5, abs=1e-9)
    ((_, lower),), ((_, upper),) = band(rows, "accuracy", share=False)
    assert (lower, upper) == pytest.approx((mean - 2 * error, mean + 2 * error))


@pytest.mark.parametrize("mean", [0.01, 0.05, 0.45, 0.97])
def test_the_figure_has_room_for_the_band(mean):
    rows = [
        {"step": i, "accuracy": mean, "accuracy_stderr": 0.08, "sampled_groups": 16} for i in range(1, 10)
    ]
    (drawing,) = draw_all([spec for spec in GRPO if spec.keys == ("accuracy",)], rows)
    groups = [node for node in parsed(drawing).iter() if node.get("id", "").startswith("FillBetween")]
    (area,) = (node.get("d", "") for node in groups[0].iter() if node.get("d"))
    heights = [HEIGHT + float(y) for y in re.findall(r"[ML] \S+ (\S+)", area)]
    top, bottom = (HEIGHT * (1 - edge) for edge in (0.95, 0.12))  # of the axes in the picture
    assert top <= min(heights) < max(heights) <= bottom
