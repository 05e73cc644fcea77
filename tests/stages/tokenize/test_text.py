import pytest

from stages.fetch.jsonl import Row
from stages.tokenize.text import ground_truth, user_text
from tests.stages.fetch.settings import dataset, tokenize


@pytest.mark.parametrize(
    ("solution", "answer", "expected"),
    [
        ("after_marker", "a\n#### 1,000 ", "1,000"),
        ("after_marker", "#### 1\n#### 2", "2"),
        ("after_marker", "no marker", ""),
        ("after_marker", "nothing after #### ", ""),
        ("answer", "the whole", "the whole"),
        ("prompt_and_answer", "b", "ab"),
    ],
)
def test_where_the_ground_truth_stands(solution, answer, expected):
    assert ground_truth(Row(1, "a", answer), dataset(solution=solution), tokenize()) == expected


def test_mindrlhf_takes_the_whole_answer_where_there_is_no_marker():
    compat = tokenize(compat="mindrlhf")
    assert ground_truth(Row(1, "a", "no marker"), dataset(), compat) == "no marker"
    assert ground_truth(Row(1, "a", "x #### 1 "), dataset(), compat) == "1 "


def test_the_suffix_belongs_to_the_prompt_but_not_for_mindrlhf():
    row = Row(1, "1+1?", "#### 2")
    assert user_text(row, tokenize(prompt_suffix=" Box it.")) == "1+1? Box it."
    assert user_text(row, tokenize(prompt_suffix=" Box it.", compat="mindrlhf")) == "1+1?"
