import importlib.util

import pytest

from stages.config import read
from stages.rewards.config import BUILTIN, RewardConfig, check_reward
from stages.rewards.functions import ITEM_REWARDS
from tests.stages.fetch.settings import ROOT, values


def test_every_builtin_name_has_a_function():
    assert set(BUILTIN) == {*ITEM_REWARDS, "maths"}


@pytest.mark.parametrize("name", [path.stem for path in (ROOT / "conf" / "reward").glob("*.yaml")])
def test_the_shipped_rewards_are_sound(name):
    assert check_reward(read(RewardConfig, values("reward", name))) == []


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
    (problem,) = check_reward(RewardConfig(functions, weights))
    assert problem.path == path


def test_maths_without_its_package_is_told_at_once(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    (problem,) = check_reward(RewardConfig(("maths",), (1.0,)))
    assert problem.remedy == "pip install math-verify"


def test_dotted_names_pass_without_being_imported():
    assert check_reward(RewardConfig(("no.such_module:reward",), (1.0,))) == []
