"""The reward for knights-and-knaves puzzles, in which each islander is one or the other.

Equals mindrlhf's kk_reward for the text after the header of the assistant's turn. Source: mindrlhf e8a8fc1,
mindrlhf/reward/kk_reward_fn.py:22-231.
"""

import re
from collections.abc import Sequence

TAGS = ("<think>", "</think>", "<answer>", "</answer>")
ANSWER = re.compile(r"<answer>(.*?)</answer>", re.DOTALL)
NAMED = re.compile(r"\b([A-Za-z]+)\b.*?\b(knight|knave)\b", re.IGNORECASE)
FORMAT, RIGHT, WRONG, UNREADABLE = 1.0, 2.0, -1.5, -2.0


def knights(completion: str, solution: str) -> float:
    """Return 3 for the right answer in the right form, down to -3 if neither can be read.

    Form (+1, else -1): each of <think>, </think>, <answer>, </answer> once, in this order. Answer (only in
    the right form): +2 if every islander is named as in `solution`, -1.5 if one is not; -2 if not every one
    is named as "NAME is a knight" or "... knave", or the form is wrong.

    `solution` has one line per islander with a name and knight or knave.
    """
    answers = ANSWER.findall(completion)
    answer = answers[-1].strip() if answers else ""
    positions = [completion.find(tag) for tag in TAGS]
    well_formed = all(completion.count(tag) == 1 for tag in TAGS) and positions == sorted(positions)
    form = FORMAT if well_formed else -FORMAT
    if not (well_formed and answer):
        return form + UNREADABLE
    truth = _truth(solution)
    assigned = _assigned_roles(answer, list(truth))
    if not assigned:
        return form + UNREADABLE
    return form + (RIGHT if assigned == truth else WRONG)


def _truth(solution: str) -> dict[str, str]:
    """Return name -> knight or knave, from each line that names one."""
    matches = (NAMED.search(line.strip()) for line in solution.split("\n"))
    return {match.group(1): match.group(2).lower() for match in matches if match}


def _assigned_roles(answer: str, names: Sequence[str]) -> dict[str, str]:
    """Return the roles that an answer assigns to `names`; empty unless it assigns exactly one to each."""
    text = answer.lower()
    if text.count("knight") + text.count("knave") != len(names):
        return {}
    roles = {}
    for name in names:
        match = re.search(rf"\b{re.escape(name)}\b\s+is\s+a\s+\b(knight|knave)\b", answer, re.IGNORECASE)
        if match is None:
            return {}
        roles[name] = match.group(1).lower()
    return roles
