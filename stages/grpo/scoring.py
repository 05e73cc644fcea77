"""Rewards of a step, each worker scoring its share.

If each worker scored all completions, a random reward function, or a call that takes too long on one worker,
would give the replicas different rewards, and their weights would silently diverge.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stages.grpo.collectives import Gather
from stages.rewards.config import RewardConfig
from stages.rewards.score import MOST_CHARACTERS, RewardScores, score, weighted

BYTES = 4 * MOST_CHARACTERS  # a character has at most four


def score_shared(
    config: RewardConfig,
    texts: Sequence[str],
    solutions: Sequence[str],
    lengths: NDArray[Any],
    rank: int,
    world: Gather,
) -> RewardScores:
    """Compute the same rewards on every worker, each completion scored by one. All workers call this.

    Args:
        config: the reward.
        texts: B completions.
        solutions: B ground truths.
        lengths: tokens of each [B].
        rank: this worker.
        world: gathers over all workers.
    """
    if world.size == 1:
        return score(config, texts, solutions, lengths.tolist())
    share = -(-len(texts) // world.size)
    rows = slice(rank * share, min((rank + 1) * share, len(texts)))
    scores = score(config, texts[rows], solutions[rows], lengths[rows].tolist())
    columns = np.zeros((share, len(config.functions)), np.float32)
    counts = np.zeros((2, len(config.functions)), np.int32)
    for i, name in enumerate(config.functions):
        columns[: len(scores.total), i] = scores.parts[name]
        counts[:, i] = scores.failures[name], scores.faults[name]
    columns = world.arrays(columns).reshape(-1, len(config.functions))[: len(texts)]
    failures, faults = world.arrays(counts).sum(0)
    parts = {name: np.ascontiguousarray(columns[:, i]) for i, name in enumerate(config.functions)}
    return RewardScores(
        weighted(config, parts),
        parts,
        {name: int(failures[i]) for i, name in enumerate(config.functions)},
        {name: int(faults[i]) for i, name in enumerate(config.functions)},
        _gather_failure_messages(config, scores, world) if failures.any() else {},
    )


def _gather_failure_messages(config: RewardConfig, scores: RewardScores, world: Gather) -> dict[str, str]:
    """Gather from all workers the first failure message of each reward function."""
    written = np.zeros((len(config.functions), BYTES), np.int32)
    for i, name in enumerate(config.functions):
        letters = scores.messages.get(name, "").encode()[:BYTES]
        written[i, : len(letters)] = np.frombuffer(letters, np.uint8)
    messages: dict[str, str] = {}
    for worker in world.arrays(written).astype(np.uint8):
        for name, letters in zip(config.functions, worker, strict=True):
            text = letters.tobytes().rstrip(b"\0").decode(errors="replace")
            if text:
                messages.setdefault(name, text)
    return messages
