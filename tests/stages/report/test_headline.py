from stages.report.headline import pairs, tiles
from tests.stages.report.synthetic import EVALUATION


def test_tiles_show_accuracy_gain_and_pass_at_k():
    shown = {tile.label: tile for tile in tiles(EVALUATION, with_sft=True)}
    assert list(shown) == ["Before GRPO, after sft", "After GRPO", "Gain", "pass@8"]
    assert shown["After GRPO"].value == "74.3 %" and shown["Gain"].value == "+23.1"
    assert shown["pass@8"].value == "91.4 %" and shown["pass@8"].detail == "87.1 % before"


def test_the_interval_is_wilsons():
    # Published example: 50 of 100 gives 0.4038 to 0.5962 (Agresti and Coull 1998).
    shown = tiles({"accuracy_sft": 0.5, "prompts": 100}, with_sft=False)
    assert [tile.label for tile in shown] == ["Before GRPO"]
    assert shown[0].detail.startswith("40.4 to 59.6 %")


def test_missing_and_odd_numbers_are_left_out():
    assert tiles({}, with_sft=True) == [] and pairs({"pass_at_k": 3, "mean_at_k": {"k": "x"}}) == []
    odd = tiles({"accuracy_sft": 0.2, "accuracy_grpo": 1.7, "prompts": 0}, with_sft=True)
    assert odd[-1].value == "+150.0"
    fallen = tiles({"accuracy_sft": 0.4, "accuracy_grpo": 0.3}, with_sft=True)
    assert fallen[-1].value == "−10.0"
