"""Shipped settings, and rows that are held out."""

import random

import pytest

from pipeline.config.load import load
from stages.base.errors import InputError
from stages.fetch.config import ColumnsConfig
from stages.fetch.records import BadLine
from stages.tokenize.config import SftDataConfig, escapes, unused_texts
from stages.tokenize.source import hold_out
from tests.stages.fetch.settings import ROOT, tokenize, write_lines

COLUMNS = ColumnsConfig("question", "answer")


def divide(tmp_path, questions, rows, shards=1):
    files = []
    for number in range(shards):
        part = [{"question": q, "answer": "1"} for q in questions[number::shards]]
        files.append(write_lines(tmp_path / f"train-{number}.jsonl", *part))
    train, test = (
        [row.prompt for file in files for row in read(file)] for read in hold_out(files, COLUMNS, rows)
    )
    return train, test


def test_rows_are_divided_without_overlap_whatever_their_order_and_shards(tmp_path):
    questions = [f"question {i}" for i in range(200)]
    train, test = divide(tmp_path, questions, 20)
    assert sorted(train + test) == sorted(questions) and len(test) == 20
    assert len({int(question.split()[1]) // 50 for question in test}) == 4  # from everywhere
    random.Random(0).shuffle(questions)
    _, again = divide(tmp_path, questions, 20, shards=3)
    assert sorted(test) == sorted(again)


def test_equal_questions_are_in_the_same_split(tmp_path):
    train, test = divide(tmp_path, [f"question {i % 50}" for i in range(200)], 21)
    assert not set(train) & set(test)
    assert 21 <= len(test) <= 24  # whole questions, four rows each


@pytest.mark.parametrize(("questions", "rows"), [(1, 10), (1, 1), (2, 21)])
def test_questions_that_would_all_be_held_out_are_an_error(tmp_path, questions, rows):
    repeated = [f"question {i % questions}" for i in range(40)]
    message = rf"dataset\.test_rows={rows}: holds out all 40 rows .* {questions} different"
    with pytest.raises(InputError, match=message):
        divide(tmp_path, repeated, rows)


def test_bad_rows_belong_to_training(tmp_path):
    rows = [{"question": question, "answer": "b"} for question in "ac"]
    file = write_lines(tmp_path / "train.jsonl", rows[0], "", rows[1])
    read_train, read_test = hold_out([file], COLUMNS, 1)
    assert BadLine(2, "blank line") in list(read_train(file))
    assert len(list(read_test(file))) == 1


SHIPPED = [
    f"{group}={file.stem}" for group in ("dataset", "reward") for file in (ROOT / "conf" / group).iterdir()
]


@pytest.mark.parametrize("choice", sorted(SHIPPED))
def test_the_shipped_choices_are_sound(choice):
    """conf/config.yaml chooses tokenize and reward by the dataset's name."""
    if choice == "dataset=alpaca":  # for supervised training alone
        supervised = ("engine=supervised", "model=qwen2_5_0_5b", "layout=dp1_mp1_pp1", "model.path=/m")
        assert load([choice, *supervised]).tokenize.kind == "alpaca"
        return
    service = ("reward.judge.url=http://127.0.0.1:8000/v1", "reward.judge.model=m")  # which a user must name
    assert load([choice, *(service if choice == "reward=judge" else ())]).tokenize.kind == "grpo"


@pytest.mark.parametrize(
    ("changes", "examples", "unused"),
    [
        ({"system_prompt": "Be brief."}, None, ["system_prompt"]),
        ({"system_prompt": "Be brief."}, "rows.jsonl", []),
        ({"system_prompt": "Be brief.", "chat_template": True}, None, []),
        ({"system_prompt": ""}, None, []),
        ({"prompt_suffix": " Box it.", "compat": "mindrlhf"}, None, ["prompt_suffix"]),
        ({"prompt_suffix": " Box it."}, None, []),
    ],
)
def test_texts_that_no_prompt_contains_are_reported(changes, examples, unused):
    problems = unused_texts(tokenize("gsm8k", **changes), SftDataConfig(examples, "alpaca"))
    assert [problem.path for problem in problems] == [f"tokenize.{key}" for key in unused]


@pytest.mark.parametrize("key", ["prompt_suffix", "system_prompt"])
@pytest.mark.parametrize(
    "text", [r"\nPut it in \boxed{}.", r"Think.\n\nAnswer.", r"a\n", r"a\tb", r"\n#### ", r"\nput"]
)
def test_an_escape_that_nobody_replaces_is_reported(key, text):
    (problem,) = escapes(tokenize("gsm8k", **{key: text}))
    assert problem.path == f"tokenize.{key}"


@pytest.mark.parametrize(
    "text", ["\nPut", r"\boxed{} \neq \times \text{x} \nu", "", "n\tt", r"\\", r"C:\dir"]
)
def test_line_breaks_and_commands_of_latex_are_no_escapes(text):
    assert list(escapes(tokenize("gsm8k", prompt_suffix=text, system_prompt=text))) == []
