import numpy as np

from stages.grpo.algorithm import dapo

REWARDS = np.array([[1, 1], [0, 1], [0, 0], [1, 0], [0, 1]], np.float32)


def test_the_first_informative_groups_are_chosen():
    assert dapo.choose(REWARDS, 2).tolist() == [1, 3]


def test_groups_without_a_signal_fill_up_the_batch():
    assert dapo.choose(REWARDS, 4).tolist() == [0, 1, 3, 4]
    assert dapo.choose(REWARDS, 5).tolist() == [0, 1, 2, 3, 4]


def test_a_step_without_a_counted_token_is_divided_by_one():
    assert dapo.divisor(np.zeros((2, 3), np.float32)) == 1
    assert dapo.divisor(np.ones((2, 3), np.float32)) == 6


def test_cut_completions_leave_the_mask():
    mask = np.array([[1.0, 1.0], [1.0, 0.0]])
    assert dapo.without_cut(mask, np.array([True, False])).tolist() == [[0, 0], [1, 0]]
