import pytest

from stages.base.errors import InputError
from stages.fetch.jsonl import Row
from stages.rewards.config import RewardConfig
from stages.rewards.length import LengthConfig
from stages.rewards.probe import Leftover, probe, sample_rows
from tests.stages.fetch.settings import FIXTURE, dataset, tokenize, values

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
