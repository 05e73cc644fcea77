"""Reward functions: how good is a completion, given the ground truth? `score` weighs several."""

from stages.rewards.config import RewardConfig
from stages.rewards.score import RewardScores, score

__all__ = ["RewardConfig", "RewardScores", "score"]
