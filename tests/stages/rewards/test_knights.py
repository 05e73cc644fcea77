import json

import pytest

from stages.rewards.knights import knights
from tests.stages.fetch.settings import ROOT

CASES = json.loads((ROOT / "tests" / "data" / "knights.json").read_text())["cases"]
TRUTH = "(1) Ann is a knight\n(2) Bo is a knave"


def test_rewards_are_those_of_mindrlhf_behind_the_header():
    headed = [case for case in CASES if case["prompt"].endswith("<|im_start|>assistant\n")]
    cases = [case for case in headed if "Assistant:" not in case["completion"]]  # it looks for this one first
    assert len(cases) > 50
    for case in cases:
        assert knights(case["completion"], case["solution"]) == case["reward"]
    assert {-3.0, -1.0, -0.5, 3.0} <= {case["reward"] for case in cases}  # every outcome occurs


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
