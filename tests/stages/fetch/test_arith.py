import re
from collections import Counter

import pytest

from stages.base.errors import InputError
from stages.fetch.arith import generate
from stages.fetch.config import ArithConfig

CONFIG = ArithConfig(min_addends=3, max_addends=5, worked_share=0.4)


def addends(question):
    return tuple(map(int, re.findall(r"\d", question)))


def test_every_answer_is_the_sum_of_its_question():
    train, test = generate(CONFIG, seed=0, train_rows=1000, test_rows=100)
    assert (len(train), len(test)) == (1000, 100)
    for question, answer in train + test:
        assert answer.rpartition("#### ")[2] == str(sum(addends(question)))
        for line in answer.split("\n")[:-1]:
            left, right = line.split("=")
            assert eval(left) == int(right)


def test_no_question_twice_and_no_addends_of_the_test_in_training():
    train, test = generate(CONFIG, seed=3, train_rows=6000, test_rows=1024)
    questions = [question for question, _ in train + test]
    assert len(set(questions)) == len(questions)
    assert not {addends(q) for q, _ in train} & {addends(q) for q, _ in test}


def test_lengths_and_worked_share_are_as_configured():
    train, _ = generate(CONFIG, seed=1, train_rows=6000, test_rows=1)
    lengths = Counter(len(addends(question)) for question, _ in train)
    assert set(lengths) == {3, 4, 5}
    assert min(lengths.values()) > 1800
    worked = sum("=" in answer for _, answer in train) / len(train)
    assert worked == pytest.approx(0.4, abs=0.03)


def test_the_seed_decides_everything():
    assert generate(CONFIG, 0, 50, 10) == generate(CONFIG, 0, 50, 10)
    assert generate(CONFIG, 0, 50, 10) != generate(CONFIG, 1, 50, 10)
    # pinned: another Python or platform must not give other rows under the same fingerprint
    assert generate(CONFIG, 0, 1, 1)[0] == [
        ("Ben has 3, 8 and 1 cups. How many in all?", "3+8=11\n11+1=12\n#### 12")
    ]


def test_the_training_rows_do_not_depend_on_the_number_of_test_rows():
    assert generate(CONFIG, 5, 200, 1)[0] == generate(CONFIG, 5, 200, 90)[0]


def test_more_rows_than_questions_is_an_error():
    with pytest.raises(InputError, match="distinct questions"):
        generate(ArithConfig(min_addends=2, max_addends=2, worked_share=0.0), 0, 9_500, 10)
