import pytest

from stages.rewards.functions import (
    UnscorableError,
    accuracy,
    answer_format,
    qwen_accuracy,
    think_block,
    think_format,
)

# Values that mindrlhf's reward_fn.py returns (its commit e8a8fc1), worked out by hand and run through it.
ACCURACY = [
    ("42", "42", 1.0),
    ("43", "42", 0.0),
    ("1,234", "1234", 1.0),
    ("1234", "1,234", 1.0),
    ("12,34", "1234", 1.0),
    ("Answer is 42 and 43", "43", 1.0),
    ("Answer is 43, no, 42.", "42", 0.0),  # the full stop belongs to the number
    ("Answer is 42 .", "42", 1.0),
    ("42.0", "42", 0.0),
    ("-42", "-42", 1.0),
    ("5-42", "-42", 1.0),
    ("+42", "42", 0.0),
    ("$42$", "$42$", 1.0),
    (".5", "5", 1.0),
    ("", "42", 0.0),
    ("No numbers", "42", 0.0),
    ("3+7=10\n#### 10", "10", 1.0),
    ("3+7=10", "10", 1.0),
    ("7", "7 of 8", 1.0),
    ("8", "7 of 8", 0.0),
]
QWEN = [
    (r"\boxed{42}", "42", 1.0),
    (r"Text \boxed{43} more", "42", 0.0),
    (r"\boxed{-42}", "-42", 1.0),
    (r"\boxed{.5}", "0.5", 0.0),
    (r"\boxed{1,234}", "1234", 1.0),
    (r"\boxed{43} \boxed{42}", "42", 1.0),
    (r"\boxed{42} 43", "42", 1.0),
    (r"\boxed{ 42 }", "42", 0.0),
    (r"\boxed{42.}", "42.", 0.0),
    (r"\boxed{}", "42", 0.0),
    ("The answer is 42", "42", 0.0),
    ("42", "42", 1.0),  # nothing boxed: the whole completion is compared
]
FORMAT = [
    ("<think>a</think><answer>b</answer>", 1.0),
    ("<think>a\nb</think>\n \n<answer>c\nd</answer>", 1.0),
    ("<think>a</think><answer>b</answer>\nmore", 1.0),
    ("<think>a</think><answer>b</answer> more", 0.0),
    ("<think>a</think>x<answer>b</answer>", 0.0),
    (" <think>a</think><answer>b</answer>", 0.0),
    ("<answer>b</answer>", 0.0),
    ("", 0.0),
]
ANSWER_FORMAT = [
    ("#### 42", 1.0),
    ("3+7=10\n#### 10", 1.0),
    ("#### 1,234.5\n", 1.0),
    ("#### -3", 1.0),
    ("#### 42\nmore", 0.0),
    ("So #### 42", 0.0),
    ("####42", 0.0),
    ("#### 4 2", 0.0),
    ("#### ", 0.0),
    ("42", 0.0),
    ("", 0.0),
]


@pytest.mark.parametrize(("completion", "solution", "expected"), ACCURACY)
def test_accuracy(completion, solution, expected):
    assert accuracy(completion, solution) == expected


def test_commas_are_removed_in_a_single_pass_without_overlaps():
    # "1,2,3" becomes "12,3", whose last number is 3; as a solution its first number is 12
    cases = [("1,2,3", "3", 1.0), ("1,2,3", "12", 0.0), ("12", "1,2,3", 1.0)]
    assert all(accuracy(completion, solution) == expected for completion, solution, expected in cases)


@pytest.mark.parametrize(("completion", "solution", "expected"), QWEN)
def test_qwen_accuracy(completion, solution, expected):
    assert qwen_accuracy(completion, solution) == expected


@pytest.mark.parametrize(("completion", "expected"), FORMAT)
def test_format(completion, expected):
    assert think_format(completion, "1") == expected


@pytest.mark.parametrize(("completion", "expected"), ANSWER_FORMAT)
def test_answer_format(completion, expected):
    assert answer_format(completion, "1") == expected


@pytest.mark.parametrize(
    ("completion", "expected"),
    [
        ("<think>\n1+1\n</think>\n\n2", 1.0),
        ("\n1+1\n</think>\n\n2", 1.0),  # the prompt ends in <think>
        ("<think>\n\n</think>\n\n#### 2", 1.0),
        ("<think>1+1</think>\n \n", 0.0),
        ("<think>1+1 2", 0.0),
        ("2", 0.0),
        ("<think>1</think>2<think>", 0.0),
        ("<think>1</think>2</think>3", 0.0),
        ("<think><think>1</think>2", 0.0),
        ("2 <think>1</think>2", 0.0),
    ],
)
def test_think(completion, expected):
    assert think_block(completion, "2") == expected


@pytest.mark.parametrize("reward", [accuracy, qwen_accuracy])
def test_a_solution_without_a_number_cannot_be_scored(reward):
    with pytest.raises(UnscorableError, match="'none' holds no number"):
        reward("42", "none")
