"""Template x verifier: every pair of the contract, against what was read in the verifiers' code."""

import dataclasses

import pytest

from stages.engines.mindspeed_rl import verifiers
from tests.stages.engines.mindspeed_rl.jobs import SEVEN, WINDOWS, job_of

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
