import random

import pytest

from stages.base.errors import InputError
from stages.fetch.config import ColumnsConfig
from stages.fetch.records import BadLine
from stages.tokenize.hold_out import hold_out
from tests.stages.fetch.settings import write_lines

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


def test_rows_are_divided_without_overlap_and_the_test_has_the_requested_size(tmp_path):
    questions = [f"question {i}" for i in range(500)]
    train, test = divide(tmp_path, questions, 64)
    assert sorted(train + test) == sorted(questions)
    assert len(test) == 64
    assert len({int(question.split()[1]) // 100 for question in test}) == 5  # from everywhere


def test_order_and_shards_do_not_matter(tmp_path):
    questions = [f"question {i}" for i in range(200)]
    _, test = divide(tmp_path, questions, 20)
    random.Random(0).shuffle(questions)
    _, again = divide(tmp_path, questions, 20, shards=3)
    assert sorted(test) == sorted(again)


def test_equal_questions_are_in_the_same_split(tmp_path):
    train, test = divide(tmp_path, [f"question {i % 50}" for i in range(200)], 21)
    assert not set(train) & set(test)
    assert 21 <= len(test) <= 24  # whole questions, four rows each


def test_bad_rows_belong_to_training(tmp_path):
    rows = [{"question": question, "answer": "b"} for question in "ac"]
    file = write_lines(tmp_path / "train.jsonl", rows[0], "", rows[1])
    read_train, read_test = hold_out([file], COLUMNS, 1)
    assert BadLine(2, "blank line") in list(read_train(file))
    assert len(list(read_test(file))) == 1


def test_something_must_be_left_to_train_on(tmp_path):
    file = write_lines(tmp_path / "train.jsonl", {"question": "a", "answer": "b"}, "")
    with pytest.raises(InputError, match=r"dataset\.test_rows=1: must be below the 1 usable rows"):
        hold_out([file], COLUMNS, 1)
