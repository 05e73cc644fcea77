import shutil
from pathlib import Path

import pytest

from pipeline.config.load import load
from stages.base.errors import ConfigError
from stages.engines.mindspeed_rl import contract, rules
from stages.engines.mindspeed_rl.engine import ENGINE
from stages.rewards.config import RewardConfig
from tests.stages.engines.mindspeed_rl.jobs import HOME, SEVEN, WINDOWS, job_of

RECIPE = ("engine=mindspeed_rl", "model.path=/models/qwen", *SEVEN)


def copy_of(version, target):
    return Path(shutil.copytree(WINDOWS[version], target / "home"))


@pytest.mark.parametrize(
    ("version", "file", "message"),
    [
        ("667a547", contract.MEGATRON_CONFIG, "no MindSpore back end"),
        ("05a90d7", contract.RL_CONFIG, "use_remove_padding"),  # between the versions
    ],
)
def test_a_checkout_of_no_known_version_is_refused(tmp_path, version, file, message):
    home = copy_of(version, tmp_path)
    assert contract.version_of_checkout(str(home)) == version
    (home / file).write_text("")
    with pytest.raises(ConfigError, match=message):
        contract.version_of_checkout(str(home))


def test_a_verifier_of_the_users_checkout_is_known(tmp_path):
    home = copy_of("667a547", tmp_path)
    recipe = [*SEVEN, f"engine.mindspeed_rl_home={home}", "engine.verifier_function=[mine]"]
    with pytest.raises(ConfigError, match=r"engine\.verifier_function\[0\]=mine: must be one of"):
        job_of(*recipe)
    file = home / contract.VERIFIERS
    file.write_text(file.read_text().replace('"base_acc":', '"mine": None, "base_acc":', 1))
    assert job_of(*recipe).engine.verifier_function == ("mine",)


def test_a_missing_converter_is_reported_before_anything_runs(tmp_path):
    def missing(version, *overrides):
        config = load([*RECIPE, f"engine.mindspeed_rl_home={WINDOWS[version]}", *overrides])
        return [str(problem) for problem in ENGINE.missing(config)]

    assert "contract 05a90d7 has no converter" in missing("05a90d7")[0]
    assert missing("05a90d7", f"engine.mindspeed_llm_home={HOME / 'llm'}") == []
    assert missing("667a547", "train.checkpoint_every=100") == []
    assert contract.check_converter(str(HOME / "llm")) == "has convert_ckpt.py"
    with pytest.raises(ConfigError, match=r"it has no convert_ckpt\.py"):
        contract.check_converter(str(tmp_path))


def test_the_earlier_version_scores_on_a_single_machine():
    job, earlier = job_of(*SEVEN), job_of(*SEVEN, "engine.contract=667a547")
    reward = RewardConfig(("qwen_accuracy",), (1.0,), None, None)
    assert len(rules.PLACED.check(rules.Placed(job, 3, reward))) == 1
    assert rules.PLACED.check(rules.Placed(earlier, 3, reward)) == []
