"""Built-in reward functions."""

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stages.rewards.config import RewardConfig
from stages.rewards.functions import (
    UnscorableError,
    accuracy,
    answer_format,
    qwen_accuracy,
    think_block,
    think_format,
)
from stages.rewards.knights import knights
from stages.rewards.length import LengthConfig, cosine, soft_overlong
from stages.rewards.score import score
from tests.stages.fetch.settings import ROOT

# Values that mindrlhf's reward_fn.py returns (its commit e8a8fc1), worked out by hand and run through it.
ACCURACY = [
    ("42", "42", 1.0), ("43", "42", 0.0), ("1,234", "1234", 1.0), ("1234", "1,234", 1.0),
    ("12,34", "1234", 1.0), ("Answer is 42 and 43", "43", 1.0),
    ("Answer is 43, no, 42.", "42", 0.0),  # the full stop belongs to the number
    ("Answer is 42 .", "42", 1.0), ("42.0", "42", 0.0), ("-42", "-42", 1.0), ("5-42", "-42", 1.0),
    ("+42", "42", 0.0), ("$42$", "$42$", 1.0), (".5", "5", 1.0), ("", "42", 0.0), ("No numbers", "42", 0.0),
    ("3+7=10\n#### 10", "10", 1.0), ("3+7=10", "10", 1.0), ("7", "7 of 8", 1.0), ("8", "7 of 8", 0.0),
    # commas are removed in one pass: "1,2,3" becomes "12,3", whose last number is 3, and whose first is 12
    ("1,2,3", "3", 1.0), ("1,2,3", "12", 0.0), ("12", "1,2,3", 1.0),
]  # fmt: skip
QWEN = [
    (r"\boxed{42}", "42", 1.0), (r"Text \boxed{43} more", "42", 0.0), (r"\boxed{-42}", "-42", 1.0),
    (r"\boxed{.5}", "0.5", 0.0), (r"\boxed{1,234}", "1234", 1.0), (r"\boxed{43} \boxed{42}", "42", 1.0),
    (r"\boxed{42} 43", "42", 1.0), (r"\boxed{ 42 }", "42", 0.0), (r"\boxed{42.}", "42.", 0.0),
    (r"\boxed{}", "42", 0.0), ("The answer is 42", "42", 0.0),
    ("42", "42", 1.0),  # nothing boxed: the whole completion is compared
]  # fmt: skip
FORMAT = [
    ("<think>a</think><answer>b</answer>", 1.0), ("<think>a\nb</think>\n \n<answer>c\nd</answer>", 1.0),
    ("<think>a</think><answer>b</answer>\nmore", 1.0), ("<think>a</think><answer>b</answer> more", 0.0),
    ("<think>a</think>x<answer>b</answer>", 0.0), (" <think>a</think><answer>b</answer>", 0.0),
    ("<answer>b</answer>", 0.0), ("", 0.0),
]  # fmt: skip
ANSWER_FORMAT = [
    ("#### 42", 1.0), ("3+7=10\n#### 10", 1.0), ("#### 1,234.5\n", 1.0), ("#### -3", 1.0),
    ("#### 42\nmore", 0.0), ("So #### 42", 0.0), ("####42", 0.0), ("#### 4 2", 0.0), ("#### ", 0.0),
    ("42", 0.0), ("", 0.0),
]  # fmt: skip


THINK = [
    ("<think>\n1+1\n</think>\n\n2", 1.0),
    ("\n1+1\n</think>\n\n2", 1.0),  # the prompt ends in <think>
    ("<think>\n\n</think>\n\n#### 2", 1.0), ("<think>1+1</think>\n \n", 0.0), ("<think>1+1 2", 0.0),
    ("2", 0.0), ("<think>1</think>2<think>", 0.0), ("<think>1</think>2</think>3", 0.0), 
    ("<think><think>1</think>2", 0.0), ("2 <think>1</think>2", 0.0),
]  # fmt: skip


@pytest.mark.parametrize(
    ("reward", "cases"),
    [(accuracy, ACCURACY), (qwen_accuracy, QWEN), (think_format, FORMAT), (answer_format, ANSWER_FORMAT),
     (think_block, THINK)],
)  # fmt: skip
def test_a_reward(reward, cases):
    for completion, *solution, expected in cases:
        assert reward(completion, *(solution or ["1"])) == expected, (completion, solution)


@pytest.mark.parametrize("reward", [accuracy, qwen_accuracy])
def test_a_solution_without_a_number_cannot_be_scored(reward):
    with pytest.raises(UnscorableError, match="'none' holds no number"):
        reward("42", "none")


KNIGHTS = json.loads((ROOT / "tests" / "data" / "knights.json").read_text())["cases"]


def test_rewards_are_those_of_mindrlhf_behind_the_header():
    headed = [case for case in KNIGHTS if case["prompt"].endswith("<|im_start|>assistant\n")]
    cases = [case for case in headed if "Assistant:" not in case["completion"]]  # it looks for this one first
    assert len(cases) > 50
    for case in cases:
        assert knights(case["completion"], case["solution"]) == case["reward"]
    assert {-3.0, -1.0, -0.5, 3.0} <= {case["reward"] for case in cases}  # every outcome occurs


MATHS = [
    (r"\boxed{42}", "42", 1.0), (r"The answer is $\frac{1}{2}$.", "0.5", 1.0),
    (r"\boxed{0.5}", r"\frac{1}{2}", 1.0), (r"\boxed{2x+1}", "$1+2x$", 1.0), (r"\boxed{x}", "$y$", 0.0),
    (r"\boxed{43}", "42", 0.0), ("so 41 ... the answer is 42", "42", 1.0), ("", "42", 0.0),
    (r"\frac{1{2}", r"\frac{1}{2}", 0.0),
    # tags, with which math-verify reads nothing
    ("<answer>5</answer>", "5", 1.0), ("<answer>6</answer>", "5", 0.0), ("<answer>5", "5", 1.0),
    ("<think>4, no</think><answer>5</answer>", "5", 1.0), ("<think>5</think><answer>4</answer>", "5", 0.0),
    ("<think>5</think>\n4", "5", 0.0), ("<answer>4</answer><answer>5</answer>", "5", 1.0),
    (r"<answer>\frac{1}{2}</answer>", "0.5", 1.0), ("<answer>x+1</answer>", "$1+x$", 1.0),
    ("<ANSWER>5</ANSWER>", "5", 1.0), ("<answer>€36</answer>", "36", 1.0), ("£36", r"\pounds 36", 1.0),
    (r"<answer>\boxed{x+1}</answer>", "$1+x$", 1.0), ("<answer>5 apples</answer>", "5", 1.0),
    # units and separators in ground truths
    (r"\boxed{36}", r"\$36", 1.0), (r"\boxed{\$36}", r"\$36", 1.0), (r"\boxed{35}", r"\$36", 0.0),
    (r"\boxed{18.9}", r"\$18.90", 1.0), (r"\boxed{32348}", r"\$32,\!348", 1.0), ("32,348",
    r"\$32,\!348", 1.0),
    (r"\boxed{32}", r"\$32,\!348", 0.0), ("<answer>$18.90</answer>", r"\$18.90", 1.0),
    (r"\boxed{5\%}", "5%", 1.0), (r"\boxed{5%}", r"5\%", 1.0), ("5%", r"5\%", 1.0), (r"\boxed{5}",
    r"5\%", 1.0),
    (r"\boxed{6\%}", r"5\%", 0.0), (r"\boxed{10\,000}", "10000", 1.0), (r"\boxed{36}", "36 dollars", 1.0),
    (r"\boxed{\frac{3}{4}}", "3/4", 1.0), (r"\boxed{2\sqrt{3}}", r"2\sqrt{3}", 1.0), (r"\boxed{2}",
    r"2\sqrt{3}", 0.0),
    (r"\boxed{\frac{1}{2}\%}", r"0.5\%", 1.0), (r"\boxed{\text{even}}", r"\text{even}", 1.0),
    (r"\boxed{\text{odd}}", r"\text{even}", 0.0),
]  # fmt: skip


@pytest.mark.parametrize(("completion", "solution", "expected"), MATHS)
def test_answers_are_compared_as_mathematics(completion, solution, expected):
    pytest.importorskip("math_verify")
    result = score(RewardConfig(("maths",), (1.0,), None), [completion], [solution])
    assert result.total.tolist() == [expected]
    assert result.failures == {"maths": 0}
    assert score(RewardConfig(("maths",), (1.0,), None), ["1"], [""]).failures == {"maths": 1}


# DAPO's own: at most 16,384 tokens wanted, 4,096 more tolerated.
DAPO = LengthConfig(20480, 0.2, "accuracy", (1.0, 0.5), (-1.0, -0.5), -1.0)


@pytest.mark.parametrize(
    ("tokens", "expected"),
    [(0, 0.0), (16384, 0.0), (16385, -1 / 4096), (18432, -0.5), (20480, -1.0), (20481, -1.0), (99999, -1.0)],
)
def test_soft_overlong_is_dapos_equation(tokens, expected):
    assert soft_overlong(tokens, DAPO) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(
    ("tokens", "right", "expected"),
    [
        (0, True, 1.0), (10240, True, 0.75), (5120, True, 0.5 + 0.25 * (1 + math.sqrt(0.5))),
        (0, False, -1.0), (10240, False, -0.75), (20480, True, -1.0), (20480, False, -1.0),
    ],
)  # fmt: skip
def test_cosine_by_hand(tokens, right, expected):
    assert cosine(tokens, right, DAPO) == pytest.approx(expected)


@given(st.integers(0, 20478), st.booleans())
def test_more_tokens_cost_the_right_and_pay_the_wrong(tokens, right):
    step = cosine(tokens + 1, right, DAPO) - cosine(tokens, right, DAPO)
    assert step <= 0 if right else step >= 0
