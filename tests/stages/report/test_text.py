"""Text and numbers, and the values at the top of a page."""

import unicodedata

import pytest

from stages.report.artifacts import Run
from stages.report.configuration import differences
from stages.report.headline import tiles
from stages.report.samples import verdict
from stages.report.text import figure, neutral
from tests.stages.report.synthetic import EVALUATION

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
    loaded = Run.load(run)
    defaults = {name: loaded.section(name) for name in ("model", "dataset", "layout", "rollout", "reward")}
    changed = {**defaults, "train": {**loaded.section("train"), "steps": 3}, "seed": 7, "unread": {"a": 1}}
    assert differences(loaded, changed) == [("seed", "0", "7"), ("train.steps", "80", "3")]


def test_verdicts_compare_rewards():
    rewards = ((0.2, 1.2), (1, 0), (1.0, 1.0), (None, 1))
    rows = [{"before_reward": before, "after_reward": after} for before, after in rewards]
    assert [verdict(row) for row in rows] == ["better", "worse", "same", ""]
