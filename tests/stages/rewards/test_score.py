"""Scores of built-in and users' functions, and their time limit."""

import importlib
import signal
import subprocess
import sys
import time
import types
from dataclasses import replace

import numpy as np
import pytest

from stages.base.errors import InputError
from stages.rewards import limit
from stages.rewards.config import RewardConfig
from stages.rewards.functions import UnscorableError
from stages.rewards.length import LengthConfig
from stages.rewards.limit import OutOfTimeError, time_limit
from stages.rewards.score import check_failures, score, user_function

score_module = importlib.import_module("stages.rewards.score")  # the package's name `score` is the function


@pytest.fixture
def module(monkeypatch):
    """A module with user reward functions."""
    rewards = types.ModuleType("my_rewards")
    monkeypatch.setitem(sys.modules, "my_rewards", rewards)
    user_function.cache_clear()
    yield rewards
    user_function.cache_clear()


def test_the_total_is_the_weighted_sum():
    config = RewardConfig(("accuracy", "answer_format"), (1.0, 0.25), None)
    result = score(config, ["#### 10", "10", "#### 9", "nine"], ["10"] * 4)
    assert result.parts["accuracy"].tolist() == [1, 1, 0, 0]
    assert result.parts["answer_format"].tolist() == [1, 0, 1, 0]
    assert result.total.tolist() == [1.25, 1.0, 0.25, 0.0]
    assert result.total.dtype == np.float32
    assert result.failures == {"accuracy": 0, "answer_format": 0}


RETURNED = [
    [float("nan")], [float("inf")], [-1e39], [6e17], [10**400], [None], ["x"], [], [1.0, 2.0], None, 1.0, "1",
    {"a": 1.0},
]  # fmt: skip
"""Numbers times their weight must be within ±1e18."""


@pytest.mark.parametrize("returned", RETURNED)
def test_an_unusable_return_value_is_a_fault(module, returned):
    module.odd = lambda completions, solutions: returned
    result = score(RewardConfig(("my_rewards:odd",), (2.0,), None), ["a"], ["b"])
    assert (result.total.tolist(), result.failures) == ([0.0], {"my_rewards:odd": 1})
    assert result.messages["my_rewards:odd"] and result.faults == result.failures


@pytest.mark.parametrize("error", [ValueError("bad luck"), SystemExit(0), GeneratorExit(), MemoryError()])
def test_an_exception_is_reported_with_its_line(module, error):
    """sys.exit(0) in a reward must not end the stage as if it were done."""

    def fail(completions, solutions):
        raise error

    module.fail = fail
    result = score(RewardConfig(("my_rewards:fail",), (1.0,), None), ["a"] * 3, ["b"] * 3)
    assert result.failures == result.faults == {"my_rewards:fail": 3}
    message = result.messages["my_rewards:fail"]
    assert message.startswith(f"{type(error).__name__}: {error} (test_score.py:")


def test_too_many_failures_are_refused(module):
    module.third = lambda completions, solutions: [1 / (int(completions[0]) % 3)]
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


def test_a_truth_that_cannot_be_compared_is_no_fault_of_the_function(module):
    def odd(completions, solutions):
        raise UnscorableError("no truth") if completions == ["a"] else ValueError("broken")

    module.odd = odd
    config = RewardConfig(("accuracy", "my_rewards:odd"), (1.0, 1.0), None)
    result = score(config, ["a", "b"], ["none", "none"])
    assert result.failures == {"accuracy": 2, "my_rewards:odd": 2}
    assert result.faults == {"accuracy": 0, "my_rewards:odd": 1}
    assert result.messages["my_rewards:odd"].startswith("ValueError: broken")
    check_failures(replace(config, max_failures=1), result, 2, "completions")


def test_hanging_calls_share_a_time_budget(module, monkeypatch):
    calls = []

    def hang(completions, solutions):
        calls.append(completions)
        time.sleep(0.0 if completions == ["quick"] else 60.0)
        return [1.0]

    module.hang = hang
    monkeypatch.setattr(score_module, "ANSWER_LIMIT_S", 0.2)
    monkeypatch.setattr(score_module, "TIMEOUTS_LIMIT_S", 0.5)
    config = RewardConfig(("my_rewards:hang",), (1.0,), None)
    result = score(config, ["quick"] + ["slow"] * 256, [""] * 257)
    assert 2 <= len(calls) <= 1 + 3  # each slow one costs 0.2 s or, on a busy machine, more
    assert result.faults == {"my_rewards:hang": 256}
    assert result.messages["my_rewards:hang"] == "no result after 0.2 s"
    calls.clear()
    assert score(config, ["quick"] * 20, [""] * 20).total.sum() == 20  # the next step has its own


@pytest.mark.parametrize("name", ["no_such_module:f", "my_rewards:missing", "my_rewards:number"])
def test_a_function_that_cannot_be_imported_is_an_error_not_a_zero(module, name):
    module.number = 3
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


def test_a_quick_block_leaves_no_alarm_and_the_old_handler():
    before = signal.getsignal(signal.SIGALRM)
    with time_limit(0.05):
        pass
    assert signal.getsignal(signal.SIGALRM) is before
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)
    time.sleep(0.1)


STUCK = """
import time
from stages.rewards import limit
limit.STUCK_S, limit.AGAIN_S = 1.0, 60.0
def never():
    while True:
        try:
            while True: time.sleep(0.01)
        except BaseException:
            pass
with limit.time_limit(0.1):
    never()
"""


def test_code_that_swallows_everything_ends_the_process_with_its_traceback():
    done = subprocess.run([sys.executable, "-c", STUCK], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert "Timeout" in done.stderr and "in never" in done.stderr


def test_an_exception_that_is_swallowed_once_is_raised_again(monkeypatch):
    monkeypatch.setattr(limit, "AGAIN_S", 0.5)
    swallowed = []
    with pytest.raises(OutOfTimeError), time_limit(0.05):
        try:
            time.sleep(5)
        except BaseException as error:
            swallowed.append(error)
        time.sleep(5)
    assert len(swallowed) == 1
