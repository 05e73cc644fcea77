"""Whether rewards can be earned, and which answers are right."""

import pytest

from stages.base.errors import InputError
from stages.fetch.jsonl import Row
from stages.rewards.config import RewardConfig, judge_of
from stages.rewards.functions import ITEM_REWARDS
from stages.rewards.judge import are_right, warn_of_words
from stages.rewards.length import LengthConfig
from stages.rewards.limit import OutOfTimeError
from stages.rewards.probe import Leftover, probe, sample_rows
from tests.stages.fetch.settings import FIXTURE, context, dataset, tokenize, values

GSM8K = dataset(path=str(FIXTURE))
BOX = "\nPut the answer in \\boxed{}."


def run(functions, data=GSM8K, weights=None, leftover=None, **changes):
    config = tokenize("gsm8k", **changes)
    reward = RewardConfig(functions, weights or (1.0,) * len(functions), None)
    return probe(data, config, reward, sample_rows(data, config, seed=0), leftover)


@pytest.mark.parametrize("name", ["arith", "gsm8k"])
def test_the_shipped_pairs_of_dataset_and_reward_can_be_earned(name):
    data = dataset() if name == "arith" else GSM8K
    shipped = values("reward", name)
    result = run(tuple(shipped["functions"]), data, tuple(shipped["weights"]))
    assert result.earnable
    assert result.problems == ()
    assert result.functions["accuracy"].means["demonstrated"] == 1.0
    assert result.functions["accuracy"].means["wrong"] == 0.0


def test_a_reward_for_boxes_is_earnable_if_the_prompt_asks_for_them():
    result = run(("qwen_accuracy",))
    (problem,) = result.problems
    assert not result.earnable and problem.value == "qwen_accuracy" and "\\boxed" in problem.remedy
    assert result.functions["qwen_accuracy"].unasked == ("boxed",)
    assert run(("qwen_accuracy",), prompt_suffix=BOX).problems == ()
    assert run(("qwen_accuracy",), prompt_suffix="", chat_template=True, system_prompt="Box:" + BOX).earnable
    # without chat template nobody sees the system prompt; mindrlhf has no suffix
    assert not run(("qwen_accuracy",), prompt_suffix="", system_prompt="Box:" + BOX).earnable
    assert not run(("qwen_accuracy",), prompt_suffix=BOX, compat="mindrlhf").earnable


def test_thinking_is_earned_where_the_template_has_the_model_think():
    result = run(("accuracy", "think"), chat_template=True, enable_thinking=True)
    assert result.problems == () and result.functions["think"].earned_by == ("thinking",)
    (problem,) = run(("accuracy", "think"), chat_template=True).problems
    assert problem.value == "think" and "<think>" in problem.remedy


LETTER = Leftover("⒠", "tokenizer.py:451", "read tokenizer.json")
REQUESTED = "\nUse <think></think><answer></answer>."


def test_part_of_a_stop_token_spoils_rewards_that_read_to_the_end(tmp_path):
    assert run(("accuracy", "format"), prompt_suffix=REQUESTED).problems == ()
    (problem,) = run(("accuracy", "format"), prompt_suffix=REQUESTED, leftover=LETTER).problems
    assert (problem.value, problem.remedy) == ("format", "read tokenizer.json")
    # a box has an end of its own; a format that nobody asks for is reported as that
    assert run(("qwen_accuracy",), prompt_suffix=BOX, leftover=LETTER).problems == ()
    for leftover in (None, LETTER):
        (problem,) = run(("format",), leftover=leftover).problems
        assert problem.remedy.startswith("ask for <answer>")
    for split in ("train", "test"):  # a bare number is compared as it is
        (tmp_path / f"{split}.jsonl").write_text('{"question": "1+1?", "answer": "2"}\n')
    numbers = dataset(path=str(tmp_path), solution="answer")
    assert run(("qwen_accuracy",), numbers).problems == ()
    assert len(run(("qwen_accuracy",), numbers, leftover=LETTER).problems) == 1


def test_ground_truths_with_several_numbers_or_none_are_reported():
    both = dataset(path=str(FIXTURE), solution="prompt_and_answer")
    result = run(("accuracy",), both)
    assert not result.earnable
    assert result.functions["accuracy"].means["demonstrated"] < 0.5
    rows = [Row(1, "Who?", "#### nobody"), Row(2, "How many?", "#### 2")]
    result = probe(GSM8K, tokenize("gsm8k"), RewardConfig(("accuracy",), (1.0,), None), rows)
    assert result.functions["accuracy"].failures == 1


def test_data_without_truth_or_rows_is_an_error(tmp_path):
    rows = [Row(1, "Who?", "nobody")]
    with pytest.raises(InputError, match=r"dataset\.solution=after_marker"):
        probe(GSM8K, tokenize("gsm8k"), RewardConfig(("accuracy",), (1.0,), None), rows)
    (tmp_path / "train.jsonl").write_text("{}\n")
    with pytest.raises(InputError, match="no usable row"):
        sample_rows(dataset(path=str(tmp_path)), tokenize("gsm8k"), 0)


def test_a_penalty_is_no_reward_to_be_earned():
    length = LengthConfig(64, 0.2, "accuracy", (1.0, 0.5), (-1.0, -0.5), -1.0)
    config = tokenize("gsm8k")
    for functions in (("accuracy", "soft_overlong"), ("cosine",)):
        reward = RewardConfig(functions, (1.0,) * len(functions), length)
        result = probe(GSM8K, config, reward, sample_rows(GSM8K, config, seed=0))
        assert (result.problems, result.earnable) == ((), True)
    single = RewardConfig(("soft_overlong",), (1.0,), length)
    result = probe(GSM8K, config, single, sample_rows(GSM8K, config, seed=0))
    assert not result.earnable
    assert [problem.value for problem in result.problems] == ["empty, wrong, cut off"]


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
