import contextlib
import importlib
import sys
import time
import types

import numpy as np
import pytest

from stages.errors import InputError
from stages.rewards import RewardConfig, score
from stages.rewards.length import LengthConfig
from stages.rewards.score import user_function

score_module = importlib.import_module("stages.rewards.score")  # the package's name `score` is the function


@pytest.fixture
def module(monkeypatch):
    """A module with the user's own rewards."""
    mine = types.ModuleType("my_rewards")
    monkeypatch.setitem(sys.modules, "my_rewards", mine)
    user_function.cache_clear()
    yield mine
    user_function.cache_clear()


def test_the_total_is_the_weighted_sum():
    config = RewardConfig(("accuracy", "answer_format"), (1.0, 0.25), None)
    result = score(config, ["#### 10", "10", "#### 9", "nine"], ["10"] * 4)
    assert result.parts["accuracy"].tolist() == [1, 1, 0, 0]
    assert result.parts["answer_format"].tolist() == [1, 0, 1, 0]
    assert result.total.tolist() == [1.25, 1.0, 0.25, 0.0]
    assert result.total.dtype == np.float32
    assert result.failures == {"accuracy": 0, "answer_format": 0}


def test_an_unscorable_solution_is_counted():
    result = score(RewardConfig(("accuracy",), (1.0,), None), ["1", "2"], ["none", "2"])
    assert result.total.tolist() == [0.0, 1.0]
    assert result.failures == {"accuracy": 1}


def test_a_users_function_that_raises_costs_one_reward_only(module):
    def short(completions, solutions):
        if "!" in completions[0]:
            raise RuntimeError("no")
        return [1.0 / len(c) for c in completions]

    module.short = short
    result = score(RewardConfig(("my_rewards:short",), (2.0,), None), ["ab", "!", "abcd"], ["", "", ""])
    assert result.total.tolist() == [1.0, 0.0, 0.5]
    assert result.failures == {"my_rewards:short": 1}


@pytest.mark.parametrize("returned", [[float("nan")], [float("inf")], [None], ["x"], [], [1.0, 2.0], None])
def test_what_is_no_finite_number_is_counted_as_a_failure(module, returned):
    module.odd = lambda completions, solutions: returned
    result = score(RewardConfig(("my_rewards:odd",), (1.0,), None), ["a"], ["b"])
    assert (result.total.tolist(), result.failures["my_rewards:odd"]) == ([0.0], 1)


@pytest.mark.parametrize("name", ["no_such_module:f", "my_rewards:missing", "my_rewards:number"])
def test_a_function_that_cannot_be_imported_is_an_error_not_a_zero(module, name):
    module.number = 3
    with pytest.raises(InputError, match=rf"reward\.functions={name}"):
        score(RewardConfig((name,), (1.0,), None), ["a"], ["b"])


def test_a_users_function_that_hangs_is_stopped_and_counted(module, monkeypatch):
    def hang(completions, solutions):
        while "loop" in completions[0]:
            with contextlib.suppress(Exception):
                time.sleep(0.01)
        return [1.0]

    module.hang = hang
    monkeypatch.setattr(score_module, "ANSWER_LIMIT_S", 0.2)
    start = time.monotonic()
    result = score(RewardConfig(("my_rewards:hang",), (1.0,), None), ["a", "loop", "b"], ["", "", ""])
    assert result.total.tolist() == [1.0, 0.0, 1.0]
    assert result.failures == {"my_rewards:hang": 1}
    assert time.monotonic() - start < 5


def test_maths_without_its_package_is_an_error(monkeypatch):
    monkeypatch.setitem(sys.modules, "math_verify", None)
    with pytest.raises(InputError, match="pip install math-verify"):
        score(RewardConfig(("maths",), (1.0,), None), ["1"], ["1"])


def test_no_completions_give_empty_scores():
    result = score(RewardConfig(("accuracy",), (1.0,), None), [], [])
    assert result.total.shape == (0,)


def test_rewards_by_length_are_told_the_tokens():
    length = LengthConfig(100, 0.2, "accuracy", (1.0, 0.5), (-1.0, -0.5), -2.0)
    config = RewardConfig(("accuracy", "soft_overlong", "cosine"), (1.0, 1.0, 0.5), length)
    result = score(config, ["10", "10", "9", "10"], ["10", "10", "10", "no number"], lengths=[0, 90, 100, 50])
    assert result.parts["soft_overlong"].tolist() == [0.0, -0.5, -1.0, 0.0]
    assert result.parts["cosine"][[0, 2]].tolist() == [1.0, -2.0]
    assert result.failures == {"accuracy": 1, "soft_overlong": 0, "cosine": 1}
    assert result.total[2] == 0 - 1 - 1
    with pytest.raises(InputError, match="needs the completions' lengths"):
        score(config, ["10"], ["10"])
