"""The completions that a page carries: which steps, what of each, and how much."""

import itertools
import json

import pytest

from stages.report import completions
from stages.report.completions import STEPS_BYTES, held_out, of_steps, read_steps
from stages.rewards.number import answer_span, final_number
from tests.stages.fetch.settings import write_lines
from tests.stages.report.synthetic import groups_of_steps, samples


def test_all_steps_of_a_short_run_are_carried_with_what_was_recorded(tmp_path):
    rows = groups_of_steps(6)
    write_lines(tmp_path / "completions.jsonl", *rows)
    carried = read_steps(tmp_path / "completions.jsonl", 1500)
    assert carried["logged"] == 6 and [step["step"] for step in carried["steps"]] == [1, 2, 3, 4, 5, 6]
    shown = [row for step in carried["steps"] for group in step["groups"] for row in group["rows"]]
    for row, seen in zip(rows, shown, strict=True):
        begin, end = seen["answer"]
        assert seen["text"] == row["completion"] and seen["text"][begin:end] == row["completion"].split()[-1]
        assert seen["right"] is bool(row["parts"]["number"])
        assert {key: seen[key] for key in ("reward", "advantage", "length", "cut", "parts")} == {
            key: row[key] for key in ("reward", "advantage", "length", "cut", "parts")
        }
    assert [len(group["rows"]) for group in carried["steps"][0]["groups"]] == [8] * 4


def test_rows_of_other_engines_have_less_and_are_grouped_by_their_prompt():
    rows = [
        {"step": 3, "prompt": p, "completion": c, "solution": "s", "reward": 1} for p, c in ("ax", "by", "az")
    ]
    (step,) = of_steps([json.dumps(row).encode() for row in [*rows, "junk", {"step": None}]] + [b"{"], 100)[
        "steps"
    ]
    assert [(group["prompt"], [row["text"] for row in group["rows"]]) for group in step["groups"]] == [
        ("a", ["x", "z"]), ("b", ["y"]),
    ]  # fmt: skip
    assert step["groups"][0]["rows"][0] == {"text": "x", "reward": 1.0}


@pytest.mark.parametrize(("steps", "letters"), [(40, 3000), (1000, 400), (2, 200_000)])
def test_a_long_run_is_carried_at_equal_distances_within_its_share_of_the_page(tmp_path, steps, letters):
    rows = [{**row, "completion": '"' * letters} for row in groups_of_steps(steps)]
    write_lines(tmp_path / "completions.jsonl", *rows)
    carried = read_steps(tmp_path / "completions.jsonl", 3000)
    names = [step["step"] for step in carried["steps"]]
    assert carried["logged"] == steps and names[0] == 1 and names[-1] == steps
    distances = [b - a for a, b in itertools.pairwise(names)]
    assert max(distances) - min(distances) <= 1 + max(distances) // 2
    size = len(json.dumps(carried["steps"]))
    assert size < 1.1 * STEPS_BYTES and (len(names) == steps or size > STEPS_BYTES // 4)
    left_out = [step["left_out"] for step in carried["steps"]]
    assert all(
        left + sum(len(group["rows"]) for group in step["groups"]) == 32
        for left, step in zip(left_out, carried["steps"], strict=True)
    )


def test_answers_before_and_after_are_carried_with_their_verdict(monkeypatch):
    rows = held_out(samples(), 1500)
    assert len(rows) == 20
    assert [row["verdict"] for row in rows[:3]] == ["fixed", "both right", "both right"]
    assert rows[0]["before"]["text"] == "#### 16" and rows[0]["after"]["parts"]["accuracy"] == 1.0
    assert [row["before"].get("samples") for row in rows[8:11]] == [[0.0, 8.0], [1.0, 8.0], None]
    assert rows[9]["after"]["samples"] == [8.0, 8.0]
    monkeypatch.setattr(completions, "HELD_OUT_BYTES", 2000)
    assert 1 <= len(held_out(samples(), 1500)) < 20


@pytest.mark.parametrize(
    ("completion", "answer"),
    [
        ("3+4=7\n#### 7", "7"), ("The answer is 18 in 2 days.", "18"), (r"so \boxed{12} it is", "12"),
        ("<answer>5</answer> 9", "5"), ("we get 3 then 9", "9"), ("the answer is 3+4=7.", "7"),
        ("a <think>#### 5</think> #### 6 apples", "6"), (r"\boxed{\frac{1}{2}}", r"\frac{1}{2}"),
        ("no number", None), ("3 or 4 #### 3 or 4", None),
    ],
)  # fmt: skip
def test_the_marked_answer_is_the_one_that_the_reward_reads(completion, answer):
    span = answer_span(completion)
    assert (None if span is None else completion[slice(*span)]) == answer
    assert span is None or final_number(completion[slice(*span)]) == final_number(completion)
