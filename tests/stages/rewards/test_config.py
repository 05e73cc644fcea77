import pytest

from stages.base.reader import read
from stages.rewards.config import RULES, RewardConfig
from tests.stages.fetch.settings import ROOT, values


@pytest.mark.parametrize("name", [path.stem for path in (ROOT / "conf" / "reward").glob("*.yaml")])
def test_the_shipped_rewards_are_sound(name):
    shipped = values("reward", name)
    if shipped["length"]:
        shipped["length"]["max_tokens"] = 64  # an interpolation
    assert RULES.check(read(RewardConfig, shipped)) == []


def test_a_dotted_name_without_a_module_is_no_reward():
    (problem,) = RULES.check(RewardConfig(("os.system",), (1.0,), None))
    assert (problem.path, problem.value, problem.id) == ("reward.functions[0]", "os.system", "reward.known")
