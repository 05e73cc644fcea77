"""The numbers at the top of the page, and what is compared below it."""

from stages.report.artifacts import Run
from stages.report.configuration import differences
from stages.report.headline import tiles
from stages.report.samples import verdict
from tests.stages.report.synthetic import EVALUATION


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
