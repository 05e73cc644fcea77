"""Whether rewards can be earned, and which answers are right."""

import pytest

from stages.base.errors import InputError
from stages.fetch.records import Row
from stages.rewards.config import RewardConfig, comparison_of
from stages.rewards.correctness import are_right, warn_of_words
from stages.rewards.functions import ITEM_REWARDS
from stages.rewards.length import LengthConfig
from stages.rewards.probe import Leftover, probe, sample_rows
from tests.stages.fetch.settings import FIXTURE, context, dataset, tokenize

GSM8K = dataset(path=str(FIXTURE))
BOX = "\nPut the answer in \\boxed{}."
LETTER = Leftover("⒠", "tokenizer.py:451", "read tokenizer.json")
REQUESTED = "\nUse <think></think><answer></answer>."


def reward(*functions, weights=None, length=None):
    return RewardConfig(functions, weights or (1.0,) * len(functions), length)


def by_length(correct_by="number"):
    return LengthConfig(64, 0.2, correct_by, (1.0, 0.5), (-1.0, -0.5), -1.0)


def run(*functions, data=GSM8K, leftover=None, rows=None, length=None, weights=None, **changes):
    config = tokenize("gsm8k", **changes)
    rows = rows or sample_rows(data, config, seed=0)
    return probe(data, config, reward(*functions, weights=weights, length=length), rows, leftover)


@pytest.mark.parametrize(
    ("functions", "changes", "value"),
    [
        (["qwen_accuracy"], {"prompt_suffix": "", "chat_template": True, "system_prompt": BOX}, None),
        # without chat template nobody sees the system prompt; mindrlhf has no suffix
        (["qwen_accuracy"], {"prompt_suffix": "", "system_prompt": BOX}, "qwen_accuracy"),
        (["qwen_accuracy"], {"prompt_suffix": BOX, "compat": "mindrlhf"}, "qwen_accuracy"),
        (["accuracy", "think"], {"chat_template": True, "enable_thinking": True}, None),
        (["accuracy", "think"], {"chat_template": True}, "think"),
        (["format"], {}, "format"),
        (["accuracy", "format"], {"prompt_suffix": REQUESTED}, None),
        # a part of the end token after the answer spoils what is read to the end; a box has an end of its own
        (["accuracy", "format"], {"prompt_suffix": REQUESTED, "leftover": LETTER}, "format"),
        (["qwen_accuracy"], {"prompt_suffix": BOX, "leftover": LETTER}, None),
        (["accuracy", "soft_overlong"], {"length": by_length()}, None),
        (["cosine"], {"length": by_length()}, None),
        (["soft_overlong"], {"length": by_length()}, "empty, wrong, cut off"),  # a penalty only
    ],
)
def test_a_reward_that_the_prompt_does_not_request_cannot_be_earned(functions, changes, value):
    result = run(*functions, **changes)
    assert [problem.value for problem in result.problems] == ([value] if value else [])
    assert result.earnable is (value is None or "accuracy" in functions)


def test_part_of_a_stop_token_spoils_bare_numbers(tmp_path):
    for split in ("train", "test"):
        (tmp_path / f"{split}.jsonl").write_text('{"question": "1+1?", "answer": "2"}\n')
    numbers = dataset(path=str(tmp_path), solution="answer")
    assert run("qwen_accuracy", data=numbers).problems == ()
    assert len(run("qwen_accuracy", data=numbers, leftover=LETTER).problems) == 1


def test_ground_truths_with_several_numbers_or_none_are_reported(tmp_path):
    result = run("accuracy", data=dataset(path=str(FIXTURE), solution="prompt_and_answer"))
    assert not result.earnable and result.functions["accuracy"].means["demonstrated"] < 0.5
    rows = [Row(1, "Who?", "#### nobody"), Row(2, "How many?", "#### 2")]
    assert run("accuracy", rows=rows).functions["accuracy"].failures == 1
    for name in ("number", "accuracy"):
        (problem,) = run(name, rows=rows).problems
        assert problem.value == name and "'nobody'" in problem.rule
    with pytest.raises(InputError, match=r"dataset\.solution=after_marker"):
        run("accuracy", rows=[Row(1, "Who?", "nobody")])
    (tmp_path / "train.jsonl").write_text("{}\n")
    with pytest.raises(InputError, match=r"no usable row, for example line 1: .*question"):
        run("accuracy", data=dataset(path=str(tmp_path)))


RELATIVE = """
import statistics

def right(completions, solutions):
    return [solution in completion for completion, solution in zip(completions, solutions)]

def worse(completions, solutions):
    values = right(completions, solutions)
    return [sum(other < value for other in values) / (len(values) - 1) for value in values]

def centred(completions, solutions):
    values = right(completions, solutions)
    mean, spread = statistics.fmean(values), statistics.pstdev(values)
    return [0.1 * (value - mean) / (spread + 1e-6) for value in values]

def in_group(completions, solutions, level):
    values = [(level, value) for level, value in zip(level, right(completions, solutions))]
    assert [values.count(value) for value in values[:8]] == [5] * 5 + [3] * 3, values
    order = sorted(range(len(values)), key=lambda row: values[row])
    ranks = {row: rank % 8 / 7 for rank, row in enumerate(order)}
    return [ranks[row] for row in range(len(values))]

def least(completions, solutions):
    return [-value for value in worse(completions, solutions)]

def low(completions, solutions):
    return [0.1 * value for value in right(completions, solutions)]
"""


@pytest.mark.parametrize(
    ("name", "is_earned"),
    [("worse", True), ("centred", True), ("in_group", True), ("least", False), ("low", False)],
)
def test_a_reward_that_compares_completions_gets_all_forms_together(users, name, is_earned):
    users(RELATIVE)
    name = f"my_rewards:{name}"
    rows = [Row(n, "How many?", f"#### {100 + n}", {"level": n}) for n in range(4)]
    result = run(name, rows=rows)
    means = result.functions[name].means
    assert (result.earnable, not result.problems) == (is_earned, is_earned)
    assert len(means) == 8 and result.functions[name].failures == 0
    assert (means["demonstrated"] > means["wrong"]) is (name != "my_rewards:least")


TAGGED, BOXED = {"prompt_suffix": REQUESTED}, {"prompt_suffix": BOX}
WORDS = ("x + y", "2", "3")
LATEX = (r"\$36", r"\$18.90", r"\$32,\!348", "5%", r"5\%", "1/2")


@pytest.mark.parametrize(
    ("function", "truths", "changes", "unmatched"),
    [
        ("number", LATEX, {}, ()), ("number", LATEX, TAGGED, ()), ("number", LATEX, BOXED, ()),
        ("maths", LATEX, TAGGED, ()), ("maths", LATEX, BOXED, ()), ("maths", WORDS, BOXED, ()),
        ("number", WORDS, {}, ("x + y",)), ("number", WORDS, BOXED, ("x + y",)),
        ("maths", ("36 dollars", "2"), BOXED, ("36 dollars",)),  # words in a box are variables to math-verify
        # mindrlhf reads plain numbers in a box alone, and the first number of a truth
        ("qwen_accuracy", ("1,234", "2", "1/2", "3"), BOXED, ("1/2",)),
        ("accuracy", ("1/2", "2", "3"), TAGGED, ("1/2",)),
        # the demonstrated answer scores, but not as the prompt asks for it
        ("qwen_accuracy", ("5", "6"), TAGGED, ("5", "6")),
    ],
)  # fmt: skip
def test_every_ground_truth_is_tried_in_the_form_that_the_prompt_requests(
    function, truths, changes, unmatched
):
    if function == "maths":
        pytest.importorskip("math_verify")
    data = dataset(path=str(FIXTURE), solution="answer")
    rows = [Row(line, "How many?", truth) for line, truth in enumerate(truths, start=1)]
    result = run(function, data=data, rows=rows, **changes)
    assert result.functions[function].unmatched == unmatched
    assert [problem.value for problem in result.problems] == [function] * bool(unmatched)


TRUTH = "(1) Zoey is a knave\n(2) Oliver is a knight"
PUZZLE = "<think>They lie.</think>\n<answer>Zoey is a knave. Oliver is a knight.</answer>"


WRONG = PUZZLE.replace("a knight.", "a knave.")
NUMBERS = ["42", "none", "7"], ["none", "none", "7"], [False, False, True]
PRICES = ["It costs $18.00.", "18", "3"], ["18", "18", "3/4"]
FORMULAS = ["so \\boxed{\\frac{1}{2}}", "so \\boxed{2}"], ["\\frac{1}{2}", "2\\sqrt{3}"]


@pytest.mark.parametrize(
    ("config", "completions", "truths", "expected"),
    [
        (None, *NUMBERS), (reward("answer_format"), *NUMBERS), (reward("my.module:function"), *NUMBERS),
        (reward("knights"), [PUZZLE, WRONG, "1"], [TRUTH] * 3, [True, False, False]),
        (reward("format", "maths"), *FORMULAS, [True, False]), (reward("accuracy"), *FORMULAS, [False, True]),
        (None, *PRICES, [True, True, False]), (reward("number"), *PRICES, [True, True, False]),
        # mindrlhf's functions compare text, in accuracies as in rewards
        (reward("accuracy"), *PRICES, [False, True, True]),
        (reward("qwen_accuracy"), *PRICES, [False, True, True]),
    ],
)  # fmt: skip
def test_answers_are_judged_by_the_reward_that_compares_them(config, completions, truths, expected):
    if config == reward("format", "maths"):
        pytest.importorskip("math_verify")
    assert are_right(config, completions, truths) == expected


def test_comparisons_that_fail_are_not_wrong_answers(monkeypatch):
    def stuck(completion, solution):
        raise RecursionError("too deep")

    monkeypatch.setitem(ITEM_REWARDS, "knights", stuck)
    assert are_right(reward("knights"), [PUZZLE] * 0, []) == []
    with pytest.raises(InputError, match="failed for 1 of 1 answers"):
        are_right(reward("knights"), [PUZZLE], [TRUTH])


def test_a_reward_by_length_is_judged_by_its_own_function():
    for name, expected in (("maths", "maths"), ("qwen_accuracy", "accuracy"), ("number", "number")):
        assert comparison_of(reward("cosine", length=by_length(name))) == expected
        assert comparison_of(reward("soft_overlong", length=by_length(name))) == "number"


def test_ground_truths_without_a_number_are_reported(tmp_path, capsys):
    warn_of_words(context(tmp_path, "evaluate", {}), reward("knights"), ["18", "A lies", "x"])
    assert capsys.readouterr().err == ""
    for name in ("accuracy", "number"):
        warn_of_words(context(tmp_path / name, "evaluate", {}), reward(name), ["18", "-3", "1,000", "x"])
        assert "1 of 4 held-out ground truths" in capsys.readouterr().err
