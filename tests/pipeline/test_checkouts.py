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
