"""Checkouts, the start of training, and template x verifier: every pair, as read in the verifiers' code."""

import dataclasses
import shutil
from pathlib import Path

import pytest
import yaml

from pipeline.config.load import load
from stages.base.errors import ConfigError
from stages.engines.mindspeed_rl import contract, train, verifiers
from stages.engines.mindspeed_rl.engine import ENGINE
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
    cards = "launcher.cards_per_node=6"  # three machines, for 16 cards
    assert job_of(*SEVEN, cards, "engine.contract=667a547").nodes == 3
    with pytest.raises(ConfigError, match="must be a multiple of machines"):
        job_of(*SEVEN, cards)


def test_training_gets_every_card_and_the_users_environment():
    overrides = (
        "engine=mindspeed_rl", "model.path=/models/qwen", *SEVEN, "engine.use_integrated_worker=false",
        "engine.reference_npus=8", "launcher.cards_per_node=16", "engine.ray_address=10.0.0.1:6379",
        "+engine.env.HCCL_IF_BASE_PORT=30000",
        "+engine.runtime_env={HCCL_SOCKET_IFNAME: eth0, HCCL_IF_BASE_PORT: 30000}",
    )  # fmt: skip
    rendered = train.render(load(overrides).plain(), {}, Path("/run"))
    command = rendered.start
    assert command.workers == 24 and command.ray is not None and command.ray.address == "10.0.0.1:6379"
    assert command.env["HCCL_IF_BASE_PORT"] == "30000" and command.env["RAY_DEDUP_LOGS"] == "0"
    variables = yaml.safe_load(rendered.files["configs/runtime_env.yaml"])["env_vars"]
    assert all(isinstance(value, str) for value in variables.values())
    assert (variables["HCCL_SOCKET_IFNAME"], variables["HCCL_IF_BASE_PORT"]) == ("eth0", "30000")


EARNED = {
    "qwen_r1": set(verifiers.NEEDS) - {"acc_for_dapo"},
    "qwen_math_r1": {"acc", "acc_for_ppo", "math_17k_acc", "retool_reward", "step"},
    "qwen": {"step"},
    "default": {"step"},
    "empty": {"step"},
}


def warnings(*names, **changes):
    """Return the warnings about these verifiers, each with weight 1; without names, about the recipe's."""
    if names:
        changes = {"verifier_function": names, "verifier_weight": (1.0,) * len(names), **changes}
    return [
        str(problem) for problem in verifiers.warnings(dataclasses.replace(job_of(*SEVEN).engine, **changes))
    ]


@pytest.mark.parametrize("prompt_type", EARNED)
def test_verifiers_that_each_template_allows(prompt_type):
    assert EARNED.keys() == set(verifiers.prompt_types(None))
    for name in verifiers.NEEDS:
        is_unearnable = any("can't be earned" in text for text in warnings(name, prompt_type=prompt_type))
        assert is_unearnable is (name not in EARNED[prompt_type]), name


def test_rewards_that_ignore_the_answer_are_reported():
    assert warnings() == []
    assert len(warnings("format", "step")) == 1
    assert warnings("format", "base_acc") == []
    assert warnings("base_acc", "acc_for_dapo", verifier_weight=(1.0, 0.0)) == []


def test_the_template_of_a_checkout_is_read():
    """The stand-ins' qwen_r1 asks for a box and not, like upstream's, for tags, too."""
    for home in WINDOWS.values():
        settings = {"mindspeed_rl_home": str(home), "prompt_type": "qwen_r1"}
        assert warnings("acc", **settings) == [] and len(warnings("base_acc", **settings)) == 1
