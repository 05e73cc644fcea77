import json

import pytest

from stages.rewards.knights import knights, knights_reward
from tests.stages.fetch.settings import ROOT

CASES = json.loads((ROOT / "tests" / "data" / "knights.json").read_text())["cases"]
TRUTH = "(1) Ann is a knight\n(2) Bo is a knave"


def test_rewards_are_those_of_mindrlhf():
    columns = [[case[key] for case in CASES] for key in ("completion", "solution", "prompt")]
    assert knights_reward(*columns) == [case["reward"] for case in CASES]
    assert {-3.0, -1.0, -0.5, 3.0} <= {case["reward"] for case in CASES}  # every outcome occurs


def test_without_prompts_the_completion_stands_behind_the_header():
    headed = [case for case in CASES if case["prompt"].endswith("<|im_start|>assistant\n")]
    assert len(headed) > 50
    for case in headed:
        if "Assistant:" not in case["completion"]:  # mindrlhf looks for this header first
            assert knights(case["completion"], case["solution"]) == case["reward"]


@pytest.mark.parametrize(
    ("completion", "expected"),
    [
        ("<think>a</think><answer>Ann is a knight, Bo is a knave</answer>", 3.0),
        ("<think>a</think><answer>Ann is a knave, Bo is a knave</answer>", -0.5),
        ("<think>a</think><answer>Ann is a knight</answer>", -1.0),
        ("<answer>Ann is a knight, Bo is a knave</answer>", -3.0),
        ("", -3.0),
    ],
)
def test_by_hand(completion, expected):
    assert knights(completion, TRUTH) == expected
