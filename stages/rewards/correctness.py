"""Right and wrong answers, from which accuracies are computed."""

from collections.abc import Mapping, Sequence
from typing import Any

from stages.base.context import Context
from stages.rewards.config import RewardConfig, comparing, comparison_of
from stages.rewards.functions import is_comparable
from stages.rewards.score import check_failures, score_each


def warn_of_words(context: Context, reward: RewardConfig, solutions: Sequence[str]) -> None:
    """Warn of ground truths that no answer matches, if accuracies compare numbers."""
    judge = comparison_of(reward)
    words = [solution for solution in solutions if not is_comparable(judge, solution)]
    if words:
        context.warn(
            f"{len(words)} of {len(solutions)} held-out ground truths are not numbers, for example "
            f"{words[0][:80]!r}: accuracy counts every answer to them as wrong; compare the rewards instead"
        )


def are_right(
    reward: RewardConfig | None,
    completions: Sequence[str],
    solutions: Sequence[str],
    columns: Mapping[str, Sequence[Any]] | None = None,
) -> list[bool]:
    """Return which completions are right; those that cannot be compared are wrong.

    `columns`: as for rewards; needed if the reward code takes its tests from one.

    Raise InputError if more comparisons fail or take too long than reward.max_failures allows.
    """
    config = comparing(reward)
    scores = score_each(config, completions, solutions, columns=columns)
    check_failures(config, scores, len(completions), "answers")
    return [value > 0 for value in scores.parts[config.functions[0]]]
