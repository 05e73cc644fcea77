"""Right and wrong answers, from which accuracies are computed."""

from collections.abc import Sequence
from dataclasses import replace

from stages.base.context import Context
from stages.rewards.config import RewardConfig, judge_of
from stages.rewards.functions import is_comparable
from stages.rewards.score import check_failures, score_each


def warn_of_words(context: Context, reward: RewardConfig, solutions: Sequence[str]) -> None:
    """Warn of ground truths that no answer matches, if accuracies compare numbers."""
    judge = judge_of(reward)
    words = [solution for solution in solutions if not is_comparable(judge, solution)]
    if words:
        context.warn(
            f"{len(words)} of {len(solutions)} held-out ground truths are not numbers, for example "
            f"{words[0][:80]!r}: accuracy counts every answer to them as wrong; compare the rewards instead"
        )


def are_right(
    reward: RewardConfig | None, completions: Sequence[str], solutions: Sequence[str]
) -> list[bool]:
    """Return which completions are right; those that cannot be compared are wrong.

    Raise InputError if more comparisons fail or take too long than reward.max_failures allows.
    """
    judge = judge_of(reward)
    config = RewardConfig((judge,), (1.0,), None)
    if reward is not None:
        config = replace(config, max_failures=reward.max_failures, timeout_s=reward.timeout_s)
    scores = score_each(config, completions, solutions)
    check_failures(config, scores, len(completions), "answers")
    return [value > 0 for value in scores.parts[judge]]
