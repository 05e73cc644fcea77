"""Completions whose prompts have opened a tag."""

import pytest

from stages.base.tags import continued, opened
from stages.rewards.functions import think_block, think_format

THOUGHT = "\n12 + 30\n</think>\n<answer>42</answer>"


@pytest.mark.parametrize(
    ("prompt", "opening"),
    [
        ("What?<|assistant|>\n<think>\n", "<think>\n"), ("What?<think>", "<think>"),
        ("a <answer>\n\n", "<answer>\n\n"), ("a <reasoning> ", "<reasoning> "),
        ("<think>\n\n</think>\n\n", ""), ("Think within <think></think>.\n", ""), ("<think> first", ""),
        ("What does <b>\n", ""), ("", ""),
    ],
)  # fmt: skip
def test_the_end_of_a_prompt_opens_a_tag(prompt, opening):
    assert opened(prompt) == opening


def test_the_form_of_a_completion_counts_the_opened_tag():
    for prompt in ("Why? <think>", "Why? <think>\n"):
        read = continued(prompt, THOUGHT)
        assert think_format(read, "42") == think_block(read, "42") == 1.0
        assert think_format(THOUGHT, "42") == 0.0
        assert think_format(continued(prompt, f"<think>{THOUGHT}"), "42") == 1.0
        assert think_format(continued(prompt, "42"), "42") == 0.0
    assert continued("Why?", THOUGHT) == THOUGHT
