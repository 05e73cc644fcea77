"""Right and wrong answers, from which accuracies are computed."""

from collections.abc import Sequence

from stages.rewards.config import RewardConfig, uses
from stages.rewards.score import check_failures, score_each

NUMBERS = "accuracy"
"""Function that compares numbers."""
OTHERS = ("maths", "knights")
"""Functions for ground truths that are no plain numbers."""


def judge_of(reward: RewardConfig | None) -> str:
    """Return the name of the reward's function for formulas or puzzles, else that for numbers."""
    return next((name for name in OTHERS if reward is not None and uses(reward, name)), NUMBERS)


def are_right(
    reward: RewardConfig | None, completions: Sequence[str], solutions: Sequence[str]
) -> list[bool]:
    """Return which completions are right; those that cannot be compared are wrong.

    Raises:
        InputError: more comparisons fail or take too long than reward.max_failures allows.
    """
    judge = judge_of(reward)
    config = RewardConfig((judge,), (1.0,), None, reward.max_failures if reward is not None else None)
    scores = score_each(config, completions, solutions)
    check_failures(config, scores, len(completions), "answers")
    return [value > 0 for value in scores.parts[judge]]
