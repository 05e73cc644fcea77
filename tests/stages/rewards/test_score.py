"""Scores of built-in and users' functions, and the limits of failures."""

from dataclasses import replace

import numpy as np
import pytest

from stages.base.errors import InputError
from stages.rewards.config import RewardConfig
from stages.rewards.length import LengthConfig
from stages.rewards.score import check_failures, score


def test_the_total_is_the_weighted_sum():
    config = RewardConfig(("accuracy", "answer_format"), (1.0, 0.25), None)
    result = score(config, ["#### 10", "10", "#### 9", "nine"], ["10"] * 4)
    assert result.parts["accuracy"].tolist() == [1, 1, 0, 0]
    assert result.parts["answer_format"].tolist() == [1, 0, 1, 0]
    assert result.total.tolist() == [1.25, 1.0, 0.25, 0.0]
    assert result.total.dtype == np.float32
    assert result.failures == {"accuracy": 0, "answer_format": 0}


RETURNED = [
    "float('nan')", "float('inf')", "-1e39", "6e17", "10**400", "None", "'x'", "[1.0]", "{}",
]  # fmt: skip
"""Numbers times their weight must be within ±1e18."""


@pytest.mark.parametrize("returned", RETURNED)
def test_an_unusable_value_is_a_fault(users, returned):
    users(f"def odd(c, s): return [{returned}, 1.0]")
    result = score(RewardConfig(("my_rewards:odd",), (2.0,), None), ["a", "b"], ["b", "c"])
    assert (result.total.tolist(), result.failures) == ([0.0, 2.0], {"my_rewards:odd": 1})
    assert result.messages["my_rewards:odd"] and result.faults == result.failures


@pytest.mark.parametrize(
    "returned", ["[]", "[1.0, 2.0, 3.0]", "None", "1.0", "'12'", "{1.0: 0, 2.0: 0}", "{1, 2}"]
)
def test_a_result_without_a_value_for_each_completion_is_refused(users, returned):
    users(f"def odd(c, s): return {returned}")
    with pytest.raises(InputError, match=r"reward\.functions=my_rewards:odd: returned .*for"):
        score(RewardConfig(("my_rewards:odd",), (1.0,), None), ["a", "b"], ["b", "c"])


ERRORS = [
    "ValueError('bad luck')",
    "SystemExit(0)",
    "GeneratorExit()",
    "MemoryError()",
    "KeyboardInterrupt()",
]


@pytest.mark.parametrize("error", ERRORS)
def test_an_exception_is_reported_with_its_line(users, error):
    """sys.exit(0) in a reward must not end the stage as if it were done."""
    users(f"def fail(completions, solutions):\n    raise {error}")
    result = score(RewardConfig(("my_rewards:fail",), (1.0,), None), ["a"] * 3, ["b"] * 3)
    assert result.failures == result.faults == {"my_rewards:fail": 3}
    kind, _, text = error.partition("(")
    message = f"{kind}: {text.rstrip(')').strip(chr(39))} (my_rewards.py:2)"
    assert result.messages["my_rewards:fail"] == message


def test_too_many_failures_are_refused(users):
    users("def third(c, s): return [1 / (int(each) % 3) for each in c]")
    completions = [str(i) for i in range(30)]
    config = RewardConfig(("accuracy", "my_rewards:third"), (1.0, 1.0), None)
    result = score(config, completions, completions)
    assert result.faults == {"accuracy": 0, "my_rewards:third": 10}
    assert result.total.tolist() == [1.0, 2.0, 1.5] * 10  # a fault costs no other reward
    with pytest.raises(InputError, match="failed for 10 of 30 completions of step 7, more than a tenth: Z"):
        check_failures(config, result, 30, "completions of step 7")
    check_failures(replace(config, max_failures=10), result, 30, "completions of step 7")
    with pytest.raises(InputError, match=r"more than reward\.max_failures=9: ZeroDivisionError: division by"):
        check_failures(replace(config, max_failures=9), result, 30, "completions of step 7")
    result = score(config, ["1"] * 27 + ["3"] * 3, ["1"] * 30)
    check_failures(config, result, 30, "completions of step 7")  # a tenth is not more than a tenth


def test_a_truth_that_cannot_be_compared_is_no_fault_of_the_function(users):
    users(
        """
from stages.rewards.functions import UnscorableError

def odd(completions, solutions):
    raise UnscorableError("no truth") if completions == ["a"] else ValueError("broken")
"""
    )
    config = RewardConfig(("accuracy", "my_rewards:odd"), (1.0, 1.0), None)
    result = score(config, ["a", "b"], ["none", "none"])
    assert result.failures == {"accuracy": 2, "my_rewards:odd": 2}
    assert result.faults == {"accuracy": 0, "my_rewards:odd": 1}
    assert result.messages["my_rewards:odd"].startswith("ValueError: broken")
    check_failures(replace(config, max_failures=1), result, 2, "completions")


@pytest.mark.parametrize("name", ["no_such_module:f", "my_rewards:missing", "my_rewards:number"])
def test_a_function_that_cannot_be_imported_is_an_error_not_a_zero(users, name):
    users("number = 3")
    with pytest.raises(InputError, match=rf"reward\.functions={name}"):
        score(RewardConfig((name,), (1.0,), None), ["a"], ["b"])


def test_rewards_by_length_use_the_tokens():
    length = LengthConfig(100, 0.2, "accuracy", (1.0, 0.5), (-1.0, -0.5), -2.0)
    config = RewardConfig(("accuracy", "soft_overlong", "cosine"), (1.0, 1.0, 0.5), length)
    result = score(config, ["10", "10", "9", "10"], ["10", "10", "10", "no number"], lengths=[0, 90, 100, 50])
    assert result.parts["soft_overlong"].tolist() == [0.0, -0.5, -1.0, 0.0]
    assert result.parts["cosine"][[0, 2]].tolist() == [1.0, -2.0]
    assert result.failures == {"accuracy": 1, "soft_overlong": 0, "cosine": 1}
    assert result.total[2] == 0 - 1 - 1
    with pytest.raises(InputError, match="needs the completions' lengths"):
        score(config, ["10"], ["10"])
