"""Rewards of a step, each worker scoring its share.

If each worker scored all completions, a random reward function, or a call that takes too long on one worker,
would give the replicas different rewards, and their weights would silently diverge.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stages.grpo.collectives import Gather
from stages.rewards.config import RewardConfig
from stages.rewards.score import RewardScores, score


def score_shared(
    config: RewardConfig, texts: Sequence[str], solutions: Sequence[str], lengths: NDArray[Any], rank: int,
    world: Gather,
) -> RewardScores:  # fmt: skip
    """Compute the same rewards on every worker, each of the B completions scored by one.

    All workers call this. `lengths`: tokens of each completion [B].
    """
    share = -(-len(texts) // world.size)
    rows = slice(rank * share, (rank + 1) * share)
    scores = score(config, texts[rows], solutions[rows], lengths[rows].tolist())
    return scores if world.size == 1 else join_scores(_gather(scores, world))


def _gather(scores: RewardScores, world: Gather) -> list[RewardScores]:
    """Return the scores of all workers, sent as JSON, which preserves every float32."""
    text = json.dumps(asdict(scores), default=np.ndarray.tolist).encode()
    sizes = world.arrays(np.array([len(text)], np.int32))[:, 0]
    sent = np.frombuffer(text.ljust(-(-int(sizes.max()) // 4) * 4), np.int32)
    return [_from_plain(json.loads(row.tobytes())) for row in world.arrays(sent)]


def _from_plain(values: dict[str, Any]) -> RewardScores:
    parts = {name: np.array(column, np.float32) for name, column in values["parts"].items()}
    return RewardScores(**{**values, "total": np.array(values["total"], np.float32), "parts": parts})


def join_scores(scores: Sequence[RewardScores]) -> RewardScores:
    """Concatenate the rewards of several sets of completions."""
    first = scores[0]
    return RewardScores(
        {name: np.concatenate([part.parts[name] for part in scores]) for name in first.parts},
        {name: sum(part.failures[name] for part in scores) for name in first.failures},
        {name: sum(part.faults[name] for part in scores) for name in first.faults},
        {name: message for part in reversed(scores) for name, message in part.messages.items()},
        total=np.concatenate([part.total for part in scores]),
    )
