"""Columns of the dataset for reward functions, in the order of tokenize's records."""

import pytest

from stages.base.errors import InputError
from stages.grpo.columns import dataset_columns
from stages.grpo.data import Prompts
from stages.rewards.process import Accepted
from stages.tokenize.tally import DROPPED, Tally
from tests.stages.fetch.settings import context, gsm8k_values, values, write_lines

ALL = Accepted(is_async=False, names=None, required=())


def accepts(*names):
    return Accepted(is_async=False, names=frozenset(names), required=())


@pytest.fixture
def made(tmp_path):
    """Ten rows of which one is not JSON and two were left out as too long; the first eight are used."""
    fetched, tokenized = tmp_path / "fetched", tmp_path / "tokenized"
    fetched.mkdir()
    tokenized.mkdir()
    rows = [{"question": f"q{n}", "answer": f"#### {n}", "level": n, "prompts": "x"} for n in range(10)]
    rows[4]["tests"] = ["assert"]
    write_lines(fetched / "train.jsonl", *rows[:3], "{broken", *rows[3:])
    write_lines(fetched / "test.jsonl", *reversed(rows))
    tally = Tally("train.mindrecord", tokenized / f"train{DROPPED}")
    for line in (2, 6):  # levels 1 and 4
        tally.drop(fetched / "train.jsonl", line, "too long")
    Tally("sft.mindrecord", tokenized / f"train{DROPPED}").drop(fetched / "train.jsonl", 3, "too long")
    config = {"dataset": gsm8k_values(train_rows=8), "tokenize": values("tokenize", "gsm8k")}
    return context(tmp_path, "grpo", config, fetch_dataset=fetched, tokenize=tokenized)


def test_columns_are_those_of_the_rows_that_tokenize_wrote(made):
    records = made.inputs["tokenize"]
    columns = dataset_columns(made, records / "train.mindrecord", 6, [ALL])
    assert columns.keys() == {"question", "answer", "level"}  # the row with tests was left out
    assert columns["level"] == [0, 2, 3, 5, 6, 7] and columns["question"][1] == "q2"
    columns = dataset_columns(
        made, records / "test.mindrecord", 10, [accepts("tests", "prompts"), accepts("level")]
    )
    assert columns == {"level": list(range(9, -1, -1)), "tests": [None] * 5 + [["assert"]] + [None] * 4}


def test_the_dataset_is_not_read_again_without_need(made):
    (made.inputs["fetch_dataset"] / "train.jsonl").unlink()
    assert dataset_columns(made, made.inputs["tokenize"] / "train.mindrecord", 6, [accepts("prompts")]) == {}


def test_rows_that_are_not_those_of_the_records_are_refused(made):
    with pytest.raises(InputError, match="has 6 usable rows for the 7 of"):
        dataset_columns(made, made.inputs["tokenize"] / "train.mindrecord", 7, [ALL])


def test_every_completion_of_a_group_has_its_prompts_columns():
    prompts = Prompts([[0]] * 3, [1] * 3, ("a", "b", "c"), ("1", "2", "3"), {"level": [7, 8, 9]})
    assert prompts.arguments(2) == {"prompts": list("aabbcc"), "level": [7, 7, 8, 8, 9, 9]}
