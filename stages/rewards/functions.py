"""The built-in reward functions, each for one completion.

accuracy, qwen_accuracy and format behave as mindrlhf's of the same name, quirks included, wherever mindrlhf
returns a value. Source: mindrlhf e8a8fc1, mindrlhf/reward/reward_fn.py:22-121.
"""

import re
from collections.abc import Callable

from stages.rewards.knights import knights

THOUSANDS = re.compile(r"(\d),(\d)")
NUMBER = re.compile(r"[-+]?\d+\.?\d*")
BOXED = re.compile(r"boxed{([-+]?\d*\.?\d+)}")
# MULTILINE: text may follow on later lines, as in mindrlhf
THINK_ANSWER = re.compile(r"^<think>.*?</think>\s*<answer>.*?</answer>$", re.DOTALL | re.MULTILINE)
MARKED_ANSWER = re.compile(r"#### [-+]?\d[\d,]*(\.\d+)?")

ItemReward = Callable[[str, str], float]


class UnscorableError(ValueError):
    """The ground truth can't be compared with anything."""


def number(completion: str, solution: str) -> float:
    """Return 1.0 if the completion's final answer is the number of the ground truth, see number.py."""
    from stages.rewards import number as numbers  # here: commands that score nothing start faster without it

    return numbers.number(completion, solution)


def accuracy(completion: str, solution: str) -> float:
    """Return 1.0 if the completion's last number is, as text, the solution's first number; else 0.0.

    A comma between two digits is removed first (one pass: "1,2,3" becomes "12,3"); "18." and "18" differ, and
    so do "+5" and "5". Raise UnscorableError if the solution holds no number (mindrlhf raises IndexError).
    """
    text = _join_thousands(completion)
    numbers = NUMBER.findall(text)
    return float((numbers[-1] if numbers else text).lower() == _first_number(solution))


def qwen_accuracy(completion: str, solution: str) -> float:
    r"""Score like `accuracy`, but only numbers in \boxed{...} count; without any, all of the text does.

    Raises:
        UnscorableError: the solution holds no number.
    """
    text = _join_thousands(completion)
    numbers = BOXED.findall(text)
    return float((numbers[-1] if numbers else text).lower() == _first_number(solution))


def think_format(completion: str, solution: str) -> float:
    """Return 1.0 if the text starts with <think>…</think><answer>…</answer>, ending a line; else 0.0."""
    del solution
    return float(THINK_ANSWER.match(completion) is not None)


def think_block(completion: str, solution: str) -> float:
    """Return 1.0 if the completion is one <think> block and an answer after it, as Qwen3's are; else 0.0.

    The chat template may have opened the block at the prompt's end.
    """
    del solution
    thinking, closed, answer = completion.removeprefix("<think>").partition("</think>")
    once = "<think>" not in thinking + answer and "</think>" not in answer
    return float(bool(closed) and once and bool(answer.strip()))


def answer_format(completion: str, solution: str) -> float:
    """Return 1.0 if the completion's last line is "#### N" and nothing else, N a number; else 0.0."""
    del solution
    return float(MARKED_ANSWER.fullmatch(completion.rstrip().rpartition("\n")[2]) is not None)


def _join_thousands(text: str) -> str:
    return THOUSANDS.sub(r"\1\2", text)


def holds_number(solution: str) -> bool:
    """Return True if `accuracy` can compare answers with a ground truth."""
    return NUMBER.search(solution) is not None


def is_comparable(name: str, solution: str) -> bool:
    """Return False if the function `name` compares numbers, and the ground truth is none."""
    if name == "number":
        from stages.rewards.number import true_number

        return true_number(solution) is not None
    return name not in ("accuracy", "qwen_accuracy") or holds_number(solution)


def _first_number(solution: str) -> str:
    match = NUMBER.search(_join_thousands(solution))
    if match is None:
        raise UnscorableError(f"the solution {solution!r} holds no number")
    return match.group()


ITEM_REWARDS: dict[str, ItemReward] = {
    "number": number,
    "accuracy": accuracy,
    "qwen_accuracy": qwen_accuracy,
    "format": think_format,
    "think": think_block,
    "answer_format": answer_format,
    "knights": knights,
}
