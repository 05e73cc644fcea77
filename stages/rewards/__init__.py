"""Reward functions: how good is a completion, given the ground truth?

Each `*_reward` takes (completions, solutions) and returns one number each; `score` weighs several.
"""

from stages.rewards.config import RewardConfig
from stages.rewards.functions import (
    accuracy_reward,
    answer_format_reward,
    format_reward,
    qwen_accuracy_reward,
)
from stages.rewards.knights import knights_reward
from stages.rewards.score import RewardScores, score

__all__ = [
    "RewardConfig", "RewardScores", "accuracy_reward", "answer_format_reward", "format_reward",
    "knights_reward", "qwen_accuracy_reward", "score",
]  # fmt: skip
