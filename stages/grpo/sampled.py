"""Prompts with their completions and rewards, and the metrics of a step about them.

Shapes: P prompts, G completions of each, B = P*G, T completion slots.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stages.grpo.algorithm import informative
from stages.grpo.data import Prompts
from stages.grpo.rollout import Completions
from stages.rewards.score import RewardScores
from stages.weights.dtypes import Array


@dataclass(frozen=True)
class Sampled:
    """Prompts, completions and rewards of a step, the same on every worker."""

    prompts: Prompts
    completions: Completions
    texts: list[str]
    """Texts of the B completions."""
    rewards: RewardScores

    @property
    def group_size(self) -> int:
        """Completions per prompt, G."""
        return len(self.texts) // len(self.prompts)

    @property
    def grouped_rewards(self) -> Array:
        """Rewards by group [P, G]."""
        return self.rewards.total.reshape(len(self.prompts), -1)

    @property
    def mask(self) -> NDArray[np.float32]:
        """Mask [B, T]: 1.0 on the completions' tokens, end tokens included."""
        slots = np.arange(self.completions.ids.shape[1])
        return (slots < self.completions.lengths[:, None]).astype(np.float32)

    def take(self, groups: Sequence[int] | Array) -> Sampled:
        """Return some prompts with their completions, in the given order."""
        rows = (np.asarray(groups)[:, None] * self.group_size + np.arange(self.group_size)).reshape(-1)
        done, rewards = self.completions, self.rewards
        return Sampled(
            self.prompts.take(groups),
            Completions(done.ids[rows], done.lengths[rows], done.cut[rows]),
            [self.texts[row] for row in rows],
            replace(
                rewards,
                total=rewards.total[rows],
                parts={name: values[rows] for name, values in rewards.parts.items()},
            ),
        )

    def metrics(self) -> dict[str, float]:
        """Return metrics of rewards and lengths, by the names of metrics.SCHEMA."""
        rewards, done, groups = self.rewards, self.completions, len(self.prompts)

        def mean_and_error(name: str, values: Array, of: str = "") -> dict[str, float]:
            grouped = values.reshape(groups, -1)
            error = standard_error(grouped.sum(1), np.full(groups, grouped.shape[1]))
            return {f"{name}{of}": float(values.mean()), f"{name}_stderr{of}": error}

        accuracy = rewards.parts.get("number", rewards.parts.get("accuracy"))
        return {
            **mean_and_error("reward", rewards.total),
            "reward_std": float(rewards.total.std()),
            **{
                key: value
                for name, part in rewards.parts.items()
                for key, value in mean_and_error("reward", part, f"/{name}").items()
            },
            **{f"reward_std/{name}": float(values.std()) for name, values in rewards.parts.items()},
            **(mean_and_error("accuracy", accuracy) if accuracy is not None else {}),
            "reward_failures": float(sum(rewards.failures.values())),
            **rewards.usage,
            "zero_variance_share": float(1 - informative(self.grouped_rewards).mean()),
            "sampled_groups": float(len(self.prompts)),
            **mean_and_error("completion_length", done.lengths),
            "completion_length_max": float(done.lengths.max()),
            "completion_cut_share": float(done.cut.mean()),
        }

    def rows(self, step: int, count: int, advantages_B: Array) -> list[dict[str, Any]]:
        """Return the first completions, for completions.jsonl; an advantage of nan was not used: null."""
        return [
            {
                "step": step,
                "prompt": self.prompts.texts[i // self.group_size],
                "completion": self.texts[i],
                "solution": self.prompts.solutions[i // self.group_size],
                "reward": float(self.rewards.total[i]),
                "parts": {name: float(values[i]) for name, values in self.rewards.parts.items()},
                "length": int(self.completions.lengths[i]),
                "cut": bool(self.completions.cut[i]),
                "advantage": None if np.isnan(advantages_B[i]) else float(advantages_B[i]),
            }
            for i in range(min(count, len(self.texts)))
        ]


def standard_error(sums: Array, counts: Array) -> float:
    """Return the standard error of sum(sums) / sum(counts), from the sums and counts of groups [P].

    Completions of one prompt are correlated: only groups are independent draws. Groups with count 0 are left
    out; 0.0 if fewer than two are left. Source: Cochran 1977, Sampling Techniques, chapter 6
    (the variance of a ratio, from its residuals).
    """
    sums, counts = sums[counts > 0].astype(np.float64), counts[counts > 0].astype(np.float64)
    if len(sums) < 2:
        return 0.0
    residuals = sums - counts * (sums.sum() / counts.sum())
    return float(math.sqrt(len(sums) / (len(sums) - 1) * (residuals**2).sum()) / counts.sum())
