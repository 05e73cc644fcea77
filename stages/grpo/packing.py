"""Which completions an update computes together, and where in the rows of attention their tokens lie.

Attention takes time and memory for all slots of its rows. If completions may be long, those of one prompt
share rows, as many as fit behind each other, so that few slots are empty and few prompts are computed twice.
Shapes, as suffixes: n parts of groups, C completions of a part at most, B all completions, T target slots.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stages.grpo.config import LONG, parts_for, shares_rows
from stages.weights.dtypes import Array

SHORTEST = 128
"""Least slots of a row with one completion: attention to the padding beyond fewer takes little time."""


@dataclass(frozen=True)
class Rows:
    """Positions of completions' input tokens in the rows of attention.

    The last token of a completion is no input: it is only predicted.
    """

    count: int
    """Rows of each part."""
    width: int
    """Slots of a row."""
    row_nC: NDArray[np.int64]
    """Row of each completion, within its part."""
    start_nC: NDArray[np.int64]
    """Slot of its first token."""


@dataclass(frozen=True)
class MicroBatch:
    """Completions to compute together: n parts of groups, each with up to C completions of one prompt."""

    prompt_n: NDArray[np.int64]
    """Index of each part's prompt."""
    completion_nC: NDArray[np.int64]
    """Indices of 0 to B-1; -1: none."""
    slots: int
    """Target slots of each completion."""
    rows: Rows

    @property
    def results(self) -> NDArray[np.int64]:
        """Indices of 0 to n*C-1 of the results that belong to a completion."""
        return np.flatnonzero(self.completion_nC >= 0)

    @property
    def completions(self) -> NDArray[np.int64]:
        """The completions that these results belong to."""
        return self.completion_nC.reshape(-1)[self.results]


@dataclass(frozen=True)
class _Part:
    """Some completions of one prompt: for each row, their indices and first slots."""

    prompt: int
    slots: int
    rows: list[list[tuple[int, int]]]


def separate(groups: int, size: int, slots: int) -> Rows:
    """Return the rows of `groups` of `size` completions that have one each, for `slots` targets."""
    row = np.broadcast_to(np.arange(size), (groups, size))
    return Rows(size, slots - 1, row, np.zeros((groups, size), np.int64))


def whole_groups(prompts: Array, tokens_PG: Array | None, size: int, G: int, T: int) -> list[MicroBatch]:
    """Return micro-batches of `size` prompts with all their completions, which have a row each.

    Groups whose longest completions are similar go together, the longest first, and slots that none of them
    needs are left out. Prompts without a token to compute are left out, too, except where they fill up the
    last micro-batch: all have one size, so that few graphs are compiled. `tokens_PG` None: all slots are
    computed.
    """
    slots = np.full(len(prompts), T)
    if tokens_PG is not None:
        longest = tokens_PG[prompts].max(1)
        slots = np.array([slots_for(int(most), T, SHORTEST) for most in longest])
        order = np.lexsort((-slots, longest == 0))  # stable: equal ones stay in their order
        prompts, slots = prompts[order], slots[order]
        needed = int((longest > 0).sum())
    else:
        needed = len(prompts)
    chunks = (slice(start, start + size) for start in range(0, needed, size))
    return [
        MicroBatch(
            prompts[chunk],
            prompts[chunk, None] * G + np.arange(G),
            int(slots[chunk][0]),
            separate(size, G, int(slots[chunk][0])),
        )
        for chunk in chunks
    ]


def shared_rows(prompts: Array, tokens_PG: Array, size: int, T: int) -> list[MicroBatch]:
    """Return micro-batches of `size` parts with at most T slots each, in which completions share rows.

    Rows are as long as the longest completion of a group needs (see `slots_for`), and a part has as many as T
    slots hold. Completions without a token to compute are left out.
    """
    G = tokens_PG.shape[1]
    parts = [part for prompt in prompts for part in _parts(int(prompt), tokens_PG[prompt], T)]
    parts.sort(key=lambda part: -part.slots)  # stable
    return [_joined(parts[start : start + size], size, G, T) for start in range(0, len(parts), size)]


def slots_for(tokens: int, slots: int, least: int) -> int:
    """Return how many of a completion's `slots` to compute if the longest of several has `tokens`.

    Each result is a graph of its own, which takes some seconds to compile and 0.1 GiB: there are few, 1/2,
    1/4, 1/8 and so on of all slots, but none below `least`.
    """
    while (half := -(-slots // 2)) >= max(tokens, least):
        slots = half
    return slots


def _parts(prompt: int, tokens_G: Array, T: int) -> Iterable[_Part]:
    """Put the completions of one prompt, the longest first, into the first row that has enough slots left."""
    order = [int(g) for g in np.argsort(-tokens_G, kind="stable") if tokens_G[g] > 0]
    if not order:
        return
    slots = slots_for(int(tokens_G[order[0]]), T, LONG)
    rows, used = list[list[tuple[int, int]]](), list[int]()
    for g in order:
        inputs = int(tokens_G[g]) - 1
        fitting = (row for row, length in enumerate(used) if length + inputs < slots)
        row = next(fitting, len(rows))
        if row == len(rows):
            rows.append([])
            used.append(0)
        rows[row].append((prompt * len(tokens_G) + g, used[row]))
        used[row] += inputs
    count = _rows_of(slots, T)
    for start in range(0, len(rows), count):
        yield _Part(prompt, slots, rows[start : start + count])


def _rows_of(slots: int, T: int) -> int:
    """Return how many rows of `slots`, a result of `slots_for`, T slots hold."""
    return round(T / slots)


def _joined(parts: list[_Part], size: int, G: int, T: int) -> MicroBatch:
    """Return a micro-batch of parts, filled up to `size`; narrow rows lie behind each other in wide ones."""
    slots = parts[0].slots
    count = _rows_of(slots, T)
    prompt_n, completion_nC = np.full(size, parts[0].prompt), np.full((size, G), -1)
    row_nC, start_nC = np.zeros((size, G), np.int64), np.zeros((size, G), np.int64)
    for i, part in enumerate(parts):
        prompt_n[i], c = part.prompt, 0
        narrow = _rows_of(part.slots, T) // count
        for number, row in enumerate(part.rows):
            for completion, start in row:
                completion_nC[i, c], row_nC[i, c] = completion, number // narrow
                start_nC[i, c] = start + number % narrow * (part.slots - 1)
                c += 1
    return MicroBatch(prompt_n, completion_nC, slots, Rows(count, slots - 1, row_nC, start_nC))


def micro_batches(
    prompts: Array, tokens_PG: Array | None, size: int, prompt_slots: int, G: int, T: int
) -> list[MicroBatch]:
    """Divide the completions of some `prompts` into micro-batches with as many slots as `size` groups have.

    Args:
        prompts: indices of this worker's prompts.
        tokens_PG: tokens of all completions; None: T.
        size: prompts of a micro-batch in which each completion has its own row.
        prompt_slots: S.
        G: completions of a prompt.
        T: completion slots.
    """
    if tokens_PG is not None and shares_rows(prompt_slots, G, T):
        return shared_rows(prompts, tokens_PG, parts_for(size, G), T)
    return whole_groups(prompts, tokens_PG, size, G, T)
