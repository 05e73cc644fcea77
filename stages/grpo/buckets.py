"""Which prompts are computed together, and with how many slots: as little padding as a few shapes allow.

Every shape is a graph of its own, compiled once for some seconds, so slots come in halves of the longest
completion's only. Shapes: P prompts, G completions of each, T completion slots.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stages.grpo.parallel import Place

SHORTEST = 64  # slots below which another graph costs more than the padding


@dataclass(frozen=True)
class Bucket:
    """One micro-batch."""

    rows: NDArray[np.int64]
    """Which prompts."""
    slots: int
    """For each of their completions."""


def buckets(lengths: NDArray[Any], slots: int, place: Place, count: int) -> list[Bucket]:
    """A worker's prompts in `count` micro-batches of equally many, those with short completions together.

    Args:
        lengths: tokens of each completion [P, G], of all workers together.
        slots: T.
        place: the worker. All workers' micro-batches have the same slots: see collectives for why they must.
        count: divides the prompts of each worker.
    """
    longest = lengths.max(1).reshape(place.data_parallel, -1)
    order = np.argsort(longest, 1, kind="stable")
    most = np.take_along_axis(longest, order, 1).reshape(place.data_parallel, count, -1).max((0, 2))
    mine = order[place.data_index] + place.data_index * longest.shape[1]
    return [
        Bucket(rows, halved(slots, int(tokens)))
        for rows, tokens in zip(np.split(mine, count), most, strict=True)
    ]


def halved(slots: int, tokens: int) -> int:
    """`slots`, halved as often as `tokens` still fit and SHORTEST allows."""
    while slots % 2 == 0 and slots // 2 >= max(tokens, SHORTEST):
        slots //= 2
    return slots
