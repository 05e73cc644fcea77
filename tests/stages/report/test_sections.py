"""The sections of the page that are tables: each one's content."""

from stages.report.artifacts import Run
from stages.report.configuration import differences, sections
from stages.report.data_card import data_card
from stages.report.headline import pairs, tiles
from stages.report.layouts import rank_bytes
from stages.report.lengths import histogram, length_facts
from stages.report.provenance import environment
from stages.report.samples import last_step, verdict
from stages.report.timeline import step_time
from tests.stages.report.synthetic import CARD, EVALUATION


def test_roles_of_a_layout_are_columns(run):
    by_name = {section.name: section for section in sections(Run.load(run))}
    layout = by_name["layout"]
    assert layout.columns == ["train", "generate", "reference"] and set(layout.readers) == set(run)
    assert layout.rows[:2] == [("name", "dp1_mp2_pp1"), ("data_parallel", "1", "2", "1")]
    assert by_name["run"].rows == [("seed", "0")]
    assert by_name["train"].columns == [] and ("beta", "0.01") in by_name["train"].rows


def test_differences_from_the_defaults(run):
    loaded = Run.load(run)
    defaults = {name: loaded.section(name) for name in ("model", "dataset", "layout", "rollout", "reward")}
    changed = {**defaults, "train": {**loaded.section("train"), "steps": 3}, "seed": 7, "unread": {"a": 1}}
    assert differences(loaded, changed) == [("seed", "0", "7"), ("train.steps", "80", "3")]
    assert differences(loaded, {}) == []


def test_parts_of_a_step_add_up_to_it():
    parts = step_time([{"step": 1, "rollout_s": 2.0, "train_s": 1.0, "step_s": 4.0}])
    assert parts == [(1, "Rollout", 2, 50), (3, "Update", 1, 25), (4, "Everything else", 1, 25)]
    assert step_time([]) == []


def test_bytes_of_a_role_come_from_the_last_stage_that_wrote_it(run):
    loaded = Run.load(run)
    assert rank_bytes(loaded, "train") == {0: 1_700_000, 1: 1_700_001}
    assert rank_bytes(loaded, "generate") == {0: 3_300_000, 1: 3_300_000}
    assert rank_bytes(loaded, "reference") == {}


def test_environment_names_the_stages_of_differing_values(run):
    loaded = Run.load(run)
    assert dict(environment(loaded))["mindspore"] == "2.7.0"
    loaded.manifests["grpo"]["host"] = "node7"
    assert dict(environment(loaded))["host"].endswith("node7 (grpo)")


def test_verdicts_compare_rewards():
    rewards = ((0.2, 1.2), (1, 0), (1.0, 1.0), (None, 1))
    rows = [{"before_reward": before, "after_reward": after} for before, after in rewards]
    assert [verdict(row) for row in rows] == ["better", "worse", "same", ""]


def test_only_completions_of_the_last_step_are_shown():
    rows = [{"step": step, "prompt": f"p{i}"} for i, step in enumerate((3, 1, 3, "x", 2))]
    assert [row["prompt"] for row in last_step(rows)] == ["p0", "p2"]
    assert last_step([{"prompt": "no step"}]) == []


def test_tiles_show_accuracy_gain_and_pass_at_k():
    shown = {tile.label: tile for tile in tiles(EVALUATION, with_sft=True)}
    assert list(shown) == ["Before GRPO, after sft", "After GRPO", "Gain", "pass@8"]
    assert shown["After GRPO"].value == "74.3 %" and shown["Gain"].value == "+23.1"
    assert shown["pass@8"].value == "91.4 %" and shown["pass@8"].detail == "87.1 % before"
    # 1.96 * sqrt((0.512 * 0.488 + 0.743 * 0.257) / 1000) = 0.0411
    assert shown["Gain"].detail == "percentage points, ± 4.1"


def test_the_interval_is_wilsons():
    # Published example: 50 of 100 gives 0.4038 to 0.5962 (Agresti and Coull 1998).
    shown = tiles({"accuracy_sft": 0.5, "prompts": 100}, with_sft=False)
    assert [tile.label for tile in shown] == ["Before GRPO"]
    assert shown[0].detail.startswith("40.4 to 59.6 %")


def test_missing_and_odd_results_are_left_out():
    assert tiles({}, with_sft=True) == [] and pairs({"pass_at_k": 3, "mean_at_k": {"k": "x"}}) == []
    odd = tiles({"accuracy_sft": 0.2, "accuracy_grpo": 1.7, "prompts": 10}, with_sft=True)
    assert (odd[-1].value, odd[-1].detail) == ("+150.0", "percentage points")
    assert tiles({"accuracy_sft": 0.4, "accuracy_grpo": 0.3}, with_sft=True)[-1].value == "−10.0"


def test_idle_decode_slots_are_behind_the_longest_completion():
    rows = [{"step": 1, "completion_length": 30, "completion_length_max": 40, "rollout_s": 8.0},
            {"step": 2, "completion_length": 20, "completion_length_max": 40, "rollout_s": 4.0}]  # fmt: skip
    facts = dict(length_facts([], rows))
    assert facts["Decode slots idle behind the longest"] == "37.5 %"  # mean of 1/4 and 1/2
    assert facts["Rollout time lost to the long tail, at most"] == "4.0 s"  # 8/4 + 4/2


def test_lengths_of_first_and_last_steps_are_compared():
    rows = [{"step": step, "length": 10 * step} for step in range(1, 10) for _ in range(3)]
    drawn = histogram(rows)
    assert [label for _, label in drawn.legend] == ["first third of the steps", "last third"]
    assert "first third of the steps: mean 20 tokens over 9" in drawn.image.alt
    assert dict(length_facts(rows, []))["Longest"] == "90 tokens"
    assert histogram([{"step": 1}]) is None and length_facts([], []) == []
    assert histogram([{"step": 1, "length": 0}] * 2) is not None


def test_files_of_the_data_card_are_columns():
    card = data_card(CARD, 100)
    assert card["files"] == ["train", "sft", "test"]
    assert ("rows in", "4,000", "4,000", "1,000") in card["counts"]
    assert ("truncated", "none", "none", "none") in card["counts"]
    lengths = card["lengths"][0]
    assert lengths["figures"] == ["31.2", "24", "31", "38", "44"] and max(lengths["bars"]) == 1
    assert card["samples"][0][1][0] == ("prompt", "Tom has 3 and 4 apples.")
    assert ("tokenizer · size", "512") in card["remaining"]


def test_a_data_card_of_another_shape_is_still_shown():
    card = data_card({"files": 3, "unknown_share": 0.25}, 100)
    assert card["remaining"] == [("files", "3"), ("unknown share", "25.0 %")]
    assert data_card({}, 100) == {}
    lengths = {"x": {"histogram": {"rows": ["a", None, 2]}}}
    odd = data_card({"files": {"train": {"lengths": lengths, "samples": "s"}}}, 9)
    assert odd["lengths"][0]["bars"] == [0, 0, 1] and odd["lengths"][0]["figures"][0] == "–"
