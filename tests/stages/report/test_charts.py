"""Charts and their numbers, text and numbers, and what explains the results of a sweep."""

import itertools
import json
import random
import unicodedata
from dataclasses import replace

import numpy as np
import pytest

from stages.report.artifacts import Artifacts, points
from stages.report.charts import (
    GRPO,
    MAX_POINTS,
    OVERLAID,
    SFT,
    TABLE_ROWS,
    Source,
    band,
    charts,
    data,
    half_widths,
    overlaid,
    style_of,
)
from stages.report.details import differences, verdict, verdicts
from stages.report.headline import tiles
from stages.report.importance import MAX_DRAWN, Measured, importances, may_influence, parallel
from stages.report.sweep import _cause
from stages.report.text import figure, neutral
from tests.stages.report.synthetic import EVALUATION, metrics, warmup


def test_points_keep_the_later_of_a_repeated_step_and_drop_what_is_no_number():
    rows = [{"step": 1, "kl": 1.0}, {"step": 2, "kl": 2.0}, {"step": 2, "kl": 3.0},
            {"step": 3, "kl": None}, {"step": 4, "kl": float("nan")},
            {"step": 0, "kl": 5}, {"kl": 1}, {"step": "x", "kl": 1}]  # fmt: skip
    assert points(rows, "kl") == [(0, 5), (1, 1), (2, 3)]
    rows = [{"step": 1, "reward": 0.5, "reward_stderr": 0.1, "reward_stderr/accuracy": 0.2}]
    for name, expected in (("reward", [(1, 0.2)]), ("reward/accuracy", [(1, 0.4)]), ("kl", [])):
        assert half_widths(rows, name) == expected, "two standard errors"


def test_every_metric_has_a_chart_with_its_numbers_in_words_and_in_a_table():
    others = {
        "rollout_logprob_diff": 1e-3,
        "staleness": 1.0,
        "wait_share": 0.1,
        "staleness_share/0": 1.0,
        "turns": 3.0,
        "tool_failed_share": 0.5,
    }  # of outside engines
    held_out = [{**row, **others} for row in metrics()]
    for row in held_out[19::20]:
        row["validation_accuracy"] = 0.5
    drawn = charts(GRPO, held_out) + charts(SFT, warmup())
    assert [chart.title for chart in drawn] == [spec.title for spec in GRPO + SFT]
    for chart in drawn:
        assert any(f"at step {last}" in chart.alt for last in (80, 150))
        head, rows = chart.table
        assert len(rows) == TABLE_ROWS and all(len(row) == len(head) for row in rows)
        assert rows[0][0] == "1" and rows[-1][0] in ("80", "150")
    by_function = drawn[3]
    assert [label for *_, label in by_function.legend] == ["accuracy", "answer format"]
    assert by_function.table[0] == ["Step", "accuracy", "answer format"]
    reward = figure(metrics()[-1]["reward"])
    assert drawn[0].table[1][-1] == ["80", reward] and drawn[0].last == f"last step: {reward}"
    assert json.dumps(data(drawn)) == json.dumps(data(charts(GRPO, held_out) + charts(SFT, warmup())))


def test_a_metric_that_is_measured_now_and_then_names_its_last_step():
    rows = [
        {"step": step, **({"validation_accuracy": step / 10} if step in (2, 4) else {})} for step in range(6)
    ]
    (chart,) = charts(GRPO, rows)
    assert chart.last == "step 4: 40.0 %"


def test_the_page_carries_the_numbers_of_every_step():
    rows = metrics()
    carried = data(charts(GRPO, rows))
    (source,) = carried["sources"]
    assert source["step"] == [*range(1, 81)]
    tokens = np.cumsum([row["tokens_per_s"] * row["step_s"] for row in rows])
    assert source["tokens"] == pytest.approx(tokens, rel=1e-6)
    assert source["seconds"] == pytest.approx([2.6 * step for step in range(1, 81)], abs=0.01)
    reward = carried["charts"]["reward"]["series"][0]
    assert reward["y"] == pytest.approx([row["reward"] for row in rows], rel=1e-4)
    edges = [(row["reward"] - 0.12, row["reward"] + 0.12) for row in rows]
    assert [*zip(reward["low"], reward["high"], strict=True)] == [
        pytest.approx(edge, rel=1e-3) for edge in edges
    ]


def test_a_source_without_time_or_tokens_has_the_steps_only():
    rows = [{"step": 2, "reward": 1.0}, {"step": 1, "reward": 0.0, "time_s": 5.0, "tokens_per_s": 1.0}]
    assert Source(rows, 10).axes == {"step": [1, 2]}


def test_long_runs_have_means_over_neighbouring_steps():
    draw = random.Random(4)
    rows = [{"step": step, "loss": draw.random()} for step in range(1, 4 * MAX_POINTS + 1)]
    (chart,) = [chart for chart in charts(GRPO, rows) if chart.title == "Loss"]
    assert chart.steps_per_point == 4
    expected = [sum(row["loss"] for row in rows[i : i + 4]) / 4 for i in range(0, len(rows), 4)]
    carried = data([chart])
    assert carried["charts"]["loss"]["series"][0]["y"] == pytest.approx(expected, rel=1e-4)
    assert carried["sources"][0]["step"][:2] == [2.5, 6.5]
    assert chart.table[1][0] == ["1–4", figure(expected[0])]
    assert chart.table[1][-1] == ["5,997–6,000", figure(expected[-1])]
    sparse = [{**row, **({"validation_accuracy": 0.25} if row["step"] % 100 == 0 else {})} for row in rows]
    (chart,) = [chart for chart in charts(GRPO, sparse) if chart.title.endswith("held-out prompts")]
    assert [y for y in data([chart])["charts"][chart.id]["series"][0]["y"] if y is not None] == [0.25] * 60


def test_runs_look_the_same_in_all_charts_and_different_from_each_other():
    assert len({style_of(i) for i in range(12)}) == 12
    other = [{key: value for key, value in row.items() if key != "kl"} for row in metrics(10)]
    drawn = {chart.title: chart for chart in overlaid({"a": other, "b": metrics(20)}, [metrics(5)])}
    assert [*drawn] == [spec.title for spec in OVERLAID if spec.keys != ("validation_accuracy",)]
    assert drawn["Reward"].legend == [(0, *style_of(0), "a"), (1, *style_of(1), "b")]
    assert drawn["KL to the reference"].legend == [(1, *style_of(1), "b")]
    lines = data(drawn.values(), shared=True)["charts"]["reward"]["series"]
    assert [(line["name"], line["source"], line.get("faint")) for line in lines] == [
        ("a", 0, None), ("b", 1, None), ("", 2, True),
    ]  # fmt: skip


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


def test_a_key_that_no_result_depends_on_has_no_importance():
    points = [
        Measured(i, {"a": str(i // 2), "title": str(i % 2), "seed": str(i % 2)}, i // 2, f"evaluate/{i // 2}")
        for i in range(6)
    ]
    named = [
        replace(point, chosen={"a": point.chosen["a"], "title": point.chosen["title"]}) for point in points
    ]
    assert [each.key for each in importances(named, ["a", "title"])] == ["a"]
    apart = [replace(point, artifact=f"evaluate/{point.number}") for point in named]
    assert [each.key for each in importances(apart, ["a", "title"])] == ["a", "title"]
    unique = [replace(point, chosen={**point.chosen, "id": str(point.number)}) for point in apart]
    assert [(each.key, each.is_known) for each in importances(unique, ["id", "a"])] == [
        ("a", True),
        ("id", False),
    ]
    # keys that always change together: neither is known to change nothing
    assert len(importances(points, ["a", "title", "seed"])) == 3


def test_keys_that_only_later_stages_read_cannot_influence_the_accuracy():
    later = ["report.title", "report.language", "++report.samples", "export.shard_gib"]
    earlier = [
        "train.beta", "+train.kl_type", "seed", "layout", "layout.train.model_parallel", "model",
        "dataset.path", "reward.weights", "evaluate.num_samples", "sft.steps", "engine", "experiment",
        "engine.mini_batch_size", "rollout.temperature", "~tokenize.mask",
    ]  # fmt: skip
    assert [key for key in (*later, *earlier) if not may_influence(key)] == later


BEST_END = {
    "reward": 0.8, "kl": 0.01, "entropy": 1.0, "completion_cut_share": 0.05, "zero_variance_share": 0.3
}  # fmt: skip


@pytest.mark.parametrize(
    ("end", "is_close", "cause"),
    [
        ({"reward": 0.2}, True, "within noise"),
        ({"reward": 0.6, "completion_cut_share": 0.4}, False, "cut"),
        ({"reward": 0.6, "zero_variance_share": 0.9}, False, "no gradient"),
        ({"reward": 0.6, "entropy": 0.05}, False, "no longer explores"),
        ({"reward": 0.6, "kl": 0.2}, False, "left the start"),
        ({"reward": 0.9, "kl": 0.2}, False, "as high"),
        ({"reward": 0.6}, False, "nothing else stands out"),
        ({}, False, "as high"),
    ],
)
def test_a_point_says_what_may_explain_its_loss(end, is_close, cause):
    said = _cause({**BEST_END, **end}, BEST_END, is_close)
    assert cause in said and "; " not in said
    both = _cause({**BEST_END, "completion_cut_share": 0.4, "zero_variance_share": 0.9}, BEST_END, False)
    assert both.count("; ") == 1
    assert _cause({}, BEST_END, False) == "unknown: it has no metrics"


@pytest.mark.parametrize("results", [[], [0.5], [0.4, 0.5], [0.5, 0.5, 0.5]])
def test_too_few_or_equal_results_have_no_importance(results):
    assert importances([Measured(i, {"a": str(i)}, y) for i, y in enumerate(results)], ["a"]) == []


def test_points_have_their_values_on_each_axis():
    points = sorted(sweep(1000), key=lambda point: -point.result)
    drawn = parallel(points, ["a", "b"])
    first, second = drawn["axes"]
    assert first == {"name": "a", "values": ["1", "2", "10"]} and sorted(second["values"]) == ["x", "y"]
    assert 0 < len(drawn["points"]) <= MAX_DRAWN
    for (number, result, a, b), point in zip(drawn["points"], points[:: -(-1000 // MAX_DRAWN)], strict=True):
        assert (number, result) == (point.number, point.result)
        assert point.chosen == {"a": first["values"][a], "b": second["values"][b]}


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
    assert (shown["Gain"].value, shown["Gain"].detail) == ("+23.1", "percentage points, ± 4.1 (95 %)")


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
