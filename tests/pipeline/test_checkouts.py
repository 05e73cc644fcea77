"""Checkouts are known by their files; doctor shows what each is."""

from pathlib import Path

import pytest

from pipeline import engines
from pipeline.plan import checkouts

DATA = Path(__file__).parents[1] / "data"
MINDRLHF, ONE_STAGE = DATA / "mindrlhf_standin", DATA / "mindrlhf_one_stage_standin"
MINDSPEED_RL, MINDFORMERS = DATA / "mindspeed_rl_standin", DATA / "mindformers_standin"
[SUPERVISED] = engines.get(engines.SUPERVISED).checkouts
OLD_MINDFORMERS = engines.get("mindrlhf_one_stage").checkouts[1]
CHECKOUTS = {
    checkout.name: checkout
    for engine in engines.outside()
    for checkout in engine.checkouts
    if checkout not in (SUPERVISED, OLD_MINDFORMERS)
}


@pytest.mark.parametrize(
    ("name", "home", "contract"),
    [
        ("mindrlhf", MINDRLHF / "e8a8fc1", "e8a8fc1"),
        ("mindrlhf", MINDRLHF / "0cd087455", "0cd087455"),
        ("one_stage", ONE_STAGE / "2d0e84d", "2d0e84d"),
        ("mindspeed_rl", MINDSPEED_RL / "head", "05a90d7"),
        ("mindspeed_rl", MINDSPEED_RL / "window", "667a547"),
    ],
)
def test_checkouts_are_recognised_by_contract(name, home, contract):
    check = checkouts.check(CHECKOUTS[name], str(home))
    assert (check.status, check.found, check.remedy) == ("ok", f"{home}: {contract}", "")


@pytest.mark.parametrize(
    ("name", "message", "remedy"),
    [
        ("mindrlhf", "must be a checkout of mindspore-ai/mindrlhf", "engine.mindrlhf_home: a checkout"),
        ("one_stage", "grpo_one_stage.py", "engine.mindrlhf_home: check out 2d0e84d"),
        ("mindspeed_rl", "no cli/train_grpo.py and no cli/preprocess", "engine.mindspeed_rl_home: clone it"),
        ("mindformers", "it has no run_mindformer.py", "engine.mindformers_home: clone it"),
    ],
)
def test_an_empty_directory_is_no_checkout(name, message, remedy, tmp_path):
    check = checkouts.check(CHECKOUTS[name], str(tmp_path))
    assert check.status == "problem" and message in check.found and check.remedy.startswith(remedy)
