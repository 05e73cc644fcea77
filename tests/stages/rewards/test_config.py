import importlib.util

import pytest

from stages.base.reader import read
from stages.rewards.config import BUILTIN, RewardConfig, check_reward
from stages.rewards.functions import ITEM_REWARDS
from stages.rewards.length import LENGTH_REWARDS, LengthConfig
from tests.stages.fetch.settings import ROOT, values


def test_every_builtin_name_has_a_function():
    assert set(BUILTIN) == {*ITEM_REWARDS, *LENGTH_REWARDS, "maths"}


@pytest.mark.parametrize("name", [path.stem for path in (ROOT / "conf" / "reward").glob("*.yaml")])
def test_the_shipped_rewards_are_sound(name):
    shipped = values("reward", name)
    if shipped["length"]:
        shipped["length"]["max_tokens"] = 64  # an interpolation
    assert check_reward(read(RewardConfig, shipped)) == []


@pytest.mark.parametrize(
    ("functions", "weights", "path"),
    [
        ((), (), "reward.functions"),
        (("accuracy",), (1.0, 2.0), "reward.weights"),
        (("acuracy",), (1.0,), "reward.functions[0]"),
        (("accuracy", "accuracy"), (1.0, 1.0), "reward.functions[1]"),
        (("os.system",), (1.0,), "reward.functions[0]"),
    ],
)
def test_faults_are_named(functions, weights, path):
    (problem,) = check_reward(RewardConfig(functions, weights, None))
    assert problem.path == path


def test_maths_without_its_package_is_told_at_once(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    (problem,) = check_reward(RewardConfig(("maths",), (1.0,), None))
    assert problem.remedy == "pip install math-verify"


def test_dotted_names_pass_without_being_imported():
    assert check_reward(RewardConfig(("no.such_module:reward",), (1.0,), None)) == []


@pytest.mark.parametrize("name", LENGTH_REWARDS)
def test_rewards_by_length_need_their_section(name):
    (problem,) = check_reward(RewardConfig((name,), (1.0,), None))
    assert problem.path == "reward.length"


def test_the_ends_of_the_cosine_are_two_numbers():
    length = LengthConfig(64, 0.2, "accuracy", (1.0,), (0.0, 0.5, 1.0), -1.0)
    problems = check_reward(RewardConfig(("cosine",), (1.0,), length))
    assert [problem.path for problem in problems] == ["reward.length.correct", "reward.length.wrong"]
