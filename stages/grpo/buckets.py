"""Which prompts are computed together, and with how many slots: as little padding as a few shapes allow.

Every T is a graph of its own, compiled once for some seconds, so slots come in halves of the longest
completion's only. Shapes: P prompts, G completions of each, T completion slots.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stages.grpo import packing
from stages.grpo.parallel import Mesh

SHORTEST = 64  # slots below which another graph costs more than the padding


@dataclass(frozen=True)
class Bucket:
    """One micro-batch."""

    rows: NDArray[np.int64]
    """Indices of the prompts."""
    slots: int
    """Token slots of each of their completions."""
    sizes: tuple[int, int] | None = None
    """N and M of packing.packed; None: all slots."""


def buckets(
    prompt_lengths: NDArray[Any],
    lengths: NDArray[Any],
    slots: tuple[int, int],
    mesh: Mesh,
    count: int,
) -> list[Bucket]:
    """Split a worker's prompts into `count` equal micro-batches; prompts with short completions go together.

    Args:
        prompt_lengths: tokens of each prompt [P], of all workers together.
        lengths: tokens of each completion [P, G].
        slots: S and T.
        mesh: the worker. Workers' micro-batches have T in common: none waits while another compiles.
        count: divides the prompts of each worker.
    """
    longest = lengths.max(1).reshape(mesh.data_parallel, -1)
    order = np.argsort(longest, 1, kind="stable") + np.arange(len(longest))[:, None] * longest.shape[1]
    parts = []
    for rows in np.split(order, count, 1):
        T = halved(slots[1], int(lengths[rows].max()))
        rows_of_worker = rows[mesh.data_index]
        holds = packing.slots(prompt_lengths[rows_of_worker], slots[0], lengths[rows_of_worker], T)
        parts.append(Bucket(rows_of_worker, T, packing.sizes(*holds)))
    return parts


def halved(slots: int, tokens: int) -> int:
    """`slots`, halved as often as `tokens` still fit and SHORTEST allows."""
    while slots % 2 == 0 and slots // 2 >= max(tokens, SHORTEST):
        slots //= 2
    return slots
