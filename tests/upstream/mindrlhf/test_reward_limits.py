"""What mindrlhf's own reward functions cannot judge, and grpoflow therefore refuses."""

from pathlib import Path

import pytest

from stages.engines.mindrlhf.config import VERSIONS
from stages.engines.mindrlhf.rules import HEADER
from tests.upstream.programs import ask

pytestmark = pytest.mark.upstream
PROGRAM = Path(__file__).with_name("reward_program.py")
ANSWER = "<think>x</think><answer>Ann is a {}</answer>"
RIGHT, WRONG = ANSWER.format("knight"), ANSWER.format("knave")


@pytest.fixture(params=VERSIONS)
def call(request, checkout, interpreter):
    """Return a function that calls a reward function of mindrlhf."""
    directory = checkout(f"mindrlhf-{request.param}") / "mindrlhf/reward"

    def call(file, name, **arguments):
        question = {"file": file, "name": name, "arguments": arguments}
        return ask(interpreter("mindspore"), PROGRAM, question, directory)

    return call


@pytest.mark.parametrize("name", ["accuracy_reward", "qwen_accuracy_reward"])
def test_a_ground_truth_without_a_number_ends_it(call, name):
    assert call("reward_fn.py", name, completions=["42"], solution=["x"]) == "IndexError"


def test_puzzles_are_judged_only_after_the_header(call):
    def rewards(prompt):
        answers = {"completions": [RIGHT, WRONG], "solution": ["Ann is a knight"] * 2}
        return call("kk_reward_fn.py", "kk_reward", prompts=[prompt] * 2, **answers)

    right, wrong = rewards("Who is Ann? ")
    assert right == wrong
    right, wrong = rewards(f"Who is Ann? {HEADER} ")
    assert right > wrong
