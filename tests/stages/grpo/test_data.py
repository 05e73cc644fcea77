import numpy as np

from stages.grpo.data import Examples, Prompts, true_lengths


def test_true_lengths_count_padding_ids_inside_a_row():
    ids = np.array([[5, 0, 6, 0], [0, 0, 0, 0], [1, 2, 3, 4]])
    assert true_lengths(ids, pad=0).tolist() == [3, 0, 4]


def test_examples_with_a_prompt_of_the_checks_are_left_out():
    prompt = np.array([[1, 2, 0], [1, 2, 3], [1, 0, 0]], np.int32)
    length = np.array([2, 3, 1], np.int32)
    examples = Examples(prompt, length, np.arange(6).reshape(3, 2), np.ones((3, 2), np.float32))
    checked = Prompts(prompt[[0]], length[[0]], ("a",), ("1",))
    left = examples.without(checked)
    assert len(left) == 2 and left.completion.tolist() == [[2, 3], [4, 5]]
