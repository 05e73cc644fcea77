import pytest

from stages.base.errors import InputError
from stages.rewards.config import RewardConfig, judge_of
from stages.rewards.functions import ITEM_REWARDS
from stages.rewards.judge import are_right, warn_of_words
from stages.rewards.length import LengthConfig
from stages.rewards.limit import OutOfTimeError
from tests.stages.fetch.settings import context

TRUTH = "(1) Zoey is a knave\n(2) Oliver is a knight"
PUZZLE = "<think>They lie.</think>\n<answer>Zoey is a knave. Oliver is a knight.</answer>"


def reward(*functions, length=None):
    return RewardConfig(functions, (1.0,) * len(functions), length)


def test_numbers_are_compared_and_what_cannot_be_scored_is_wrong():
    for config in (None, reward("answer_format"), reward("my.module:function")):
        assert are_right(config, ["42", "none", "7"], ["none", "none", "7"]) == [False, False, True]
    with pytest.raises(ValueError, match="zip"):
        are_right(None, ["1", "2"], ["1"])


def test_puzzles_are_judged_by_their_islanders_and_not_by_their_numbers():
    wrong = PUZZLE.replace("a knight.", "a knave.")
    assert are_right(reward("knights"), [PUZZLE, wrong, "1"], [TRUTH] * 3) == [True, False, False]


def test_formulas_are_judged_as_mathematics():
    pytest.importorskip("math_verify")
    completions = ["so \\boxed{\\frac{1}{2}}", "so \\boxed{2}"]
    assert are_right(reward("format", "maths"), completions, ["\\frac{1}{2}", "2\\sqrt{3}"]) == [True, False]
    by_numbers = are_right(reward("accuracy"), completions, ["\\frac{1}{2}", "2\\sqrt{3}"])
    assert by_numbers == [False, True]


def test_comparisons_that_fail_are_not_wrong_answers(monkeypatch):
    def stuck(completion, solution):
        raise OutOfTimeError("no result after 5 s")

    monkeypatch.setitem(ITEM_REWARDS, "knights", stuck)
    assert are_right(reward("knights"), [PUZZLE] * 0, []) == []
    with pytest.raises(InputError, match="failed for 1 of 1 answers"):
        are_right(reward("knights"), [PUZZLE], [TRUTH])


def test_a_reward_by_length_is_judged_by_its_own_function():
    for name, expected in (("maths", "maths"), ("qwen_accuracy", "accuracy")):
        length = LengthConfig(10, 0.2, name, (1.0, 0.5), (-1.0, -0.5), -1.0)
        assert judge_of(reward("cosine", length=length)) == expected
        assert judge_of(reward("soft_overlong", length=length)) == "accuracy"


def test_ground_truths_without_a_number_are_reported(tmp_path, capsys):
    warn_of_words(context(tmp_path, "evaluate", {}), reward("knights"), ["18", "A lies", "x"])
    assert capsys.readouterr().err == ""
    warn_of_words(context(tmp_path / "2", "evaluate", {}), reward("accuracy"), ["18", "-3", "1,000", "x"])
    assert "1 of 4 held-out ground truths" in capsys.readouterr().err
