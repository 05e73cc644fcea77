import itertools

import numpy as np
import pytest

from stages.grpo.evaluate import Answers, pass_at_k, summary, worked_share


@pytest.mark.parametrize("k", [1, 2, 3, 5])
def test_pass_at_k_is_the_mean_over_all_choices_of_k(k):
    right = np.random.default_rng(k).random((6, 5)) < 0.3
    choices = list(itertools.combinations(range(5), k))
    expected = np.mean([[row[list(choice)].any() for choice in choices] for row in right])
    assert pass_at_k(right, k) == pytest.approx(expected)


def test_fewer_attempts_than_k_are_an_error():
    with pytest.raises(ValueError, match="pass@9 of 8"):
        pass_at_k(np.zeros((3, 8), bool), 9)


def answers(right, sampled):
    right = np.array(right)
    sampled = np.array(sampled, bool).reshape(-1, 2)
    return Answers(["1+1=2\n#### 2", "#### 2"], right, right.astype(np.float32), sampled)


def test_summary():
    result = summary(answers([True, False], [1, 0]), answers([True, True], [1, 1]), k=2)
    assert (result["accuracy_sft"], result["accuracy_grpo"], result["gain"], result["prompts"]) == (
        0.5,
        1.0,
        0.5,
        2,
    )
    assert result["pass_at_k"] == {"k": 2, "sft": 1.0, "grpo": 1.0}
    assert result["mean_at_k"] == {"k": 2, "sft": 0.5, "grpo": 1.0}
    assert "pass_at_k" not in summary(answers([True, False], []), answers([True, True], []), k=2)


def test_worked_share():
    assert worked_share(["1+1=2\n#### 2", "#### 2", "#### 2\n", ""]) == 0.25
