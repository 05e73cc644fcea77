"""Template x verifier: every pair of the contract, against what was read in the verifiers' code."""

import dataclasses
import functools

import pytest

from stages.engines.mindspeed_rl import contract, earnable
from tests.stages.engines.mindspeed_rl.jobs import SEVEN, WINDOWS, job_of

EARNED = {
    "qwen_r1": set(contract.verifiers(None, "05a90d7")) - {"acc_for_dapo"},
    "qwen_math_r1": {"acc", "acc_for_ppo", "math_17k_acc", "retool_reward", "step"},
    "qwen": {"step"},
    "default": {"step"},
    "empty": {"step"},
}


@functools.cache
def engine():
    return job_of(*SEVEN).engine


def told(*names, **changes):
    """Warnings of these verifiers, each with weight 1; none named: the recipe's own."""
    if names:
        changes = {"verifier_function": names, "verifier_weight": (1.0,) * len(names), **changes}
    return [str(problem) for problem in earnable.warnings(dataclasses.replace(engine(), **changes))]


def test_every_verifier_of_the_contract_is_judged():
    assert earnable.NEEDS.keys() == contract.verifiers(None, "05a90d7")
    assert EARNED.keys() == contract.prompt_types(None)


@pytest.mark.parametrize("prompt_type", EARNED)
def test_what_each_template_leads_to(prompt_type):
    for name in earnable.NEEDS:
        found = told(name, prompt_type=prompt_type)
        assert any("can't be earned" in text for text in found) is (name not in EARNED[prompt_type]), name
        assert all(text.rpartition("; ")[2].startswith(("set ", "use ", "add ")) for text in found)


def test_what_people_run_gives_no_warning():
    assert told() == []


def test_a_reward_that_looks_at_no_answer_is_told():
    assert "scores a wrong answer as a right one" in told("format", "step")[0]
    assert told("format", "base_acc") == []


def test_what_has_no_weight_is_not_judged():
    assert told("base_acc", "acc_for_dapo", verifier_weight=(1.0, 0.0)) == []


def test_a_checkout_s_own_template_is_read():
    """The stand-ins' qwen_r1 asks for a box and not, as upstream's, for tags, too."""
    for home in WINDOWS.values():
        own = dataclasses.replace(engine(), mindspeed_rl_home=str(home), prompt_type="qwen_r1")
        assert earnable.forms(own) == {earnable.BOXED}
