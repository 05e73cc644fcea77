"""The tokens of a batch without its padding: one list for norms and products, and each token's slot.

Shapes: P prompts of S slots, G completions of each of T slots, of which the last is a target but no input; N
input slots that are computed and M target tokens, both with some padding.
"""

from collections.abc import Callable
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import Tensor
from numpy.typing import NDArray

Array = NDArray[Any]

MODEL_INPUTS = 11
"""Arrays of `packed`."""
VARY = ("ids", "position", "slot", "before", "target")
"""Inputs whose length is N or M."""
LEAST = 16
"""M is at least all slots by this, so that none of token_logits.pieces is empty."""
FULL = 0.9
"""All slots are computed if a larger share than this holds tokens."""


def compiled(function: Callable[[], Callable[..., Any]]) -> Callable[..., Any]:
    """Compile a function of `packed`'s results twice: for any N and M (see VARY), and for full batches.

    A graph of fixed size takes 40 us less per kernel.

    Args:
        function: returns a new function object at each call.
    """
    static: Callable[..., Any] = ms.jit(function())
    sizes = dict.fromkeys(VARY, Tensor(shape=[None], dtype=ms.int32))
    some: Callable[..., Any] = ms.enable_dynamic(**sizes)(ms.jit(function()))

    def run(*inputs: Tensor) -> Any:
        *_, prompt, completion, slot = inputs[:6]
        if slot.size < prompt.size + completion.size:
            return some(*inputs)
        return static(*inputs[: MODEL_INPUTS - 2], None, None, *inputs[MODEL_INPUTS:])

    return run


def packed(
    prompt: Array, length: Array, completion: Array, tokens: Array, sizes: tuple[int, int]
) -> list[Array]:
    """Return the inputs of CausalLM.construct.

    Args:
        prompt: ids [P, S].
        length: tokens of the prompts [P], at least 1.
        completion: ids [P, G, T].
        tokens: of the completions [P, G], 0 allowed; what comes after them is padding.
        sizes: N and M, each all slots or more than contain a token.

    Returns:
        ids and positions of the computed slots [N]; length; the row among these of each prompt slot [P, S]
        and completion slot [P, G, T-1]; the slot of each row [N]; the row before each target [M]; the target
        ids [M]; the target of each completion slot [P*G, T]; `every` (collectives.py) of N and of M rows.
        Indices of padding refer to padding.
    """
    (P, S), (G, T) = prompt.shape, completion.shape[1:]
    read, targets = slots(length, S, tokens, T)
    slot, row = _rows(read, sizes[0])
    target, target_row = _rows(targets, sizes[1])
    ids = np.concatenate([prompt.ravel(), completion[..., : T - 1].ravel()])
    after = length[:, None, None] + np.arange(T - 1)
    positions = np.concatenate([np.tile(np.arange(S), P), np.broadcast_to(after, (P, G, T - 1)).ravel()])
    last = np.broadcast_to((np.arange(P) * S + length - 1)[:, None, None], (P, G, 1))
    slots_read = (P * S + np.arange(P * G * (T - 1))).reshape(P, G, T - 1)
    before = np.concatenate([last, slots_read], -1).ravel()[target]
    prompt_rows, completion_rows = np.split(row, [P * S])
    every = [np.minimum(np.arange(len(real)), n - 1) for real, n in zip((read, targets), sizes, strict=True)]
    return [
        ids[slot], positions[slot], length, prompt_rows.reshape(P, S), completion_rows.reshape(P, G, T - 1),
        slot, row[before], completion.ravel()[target], target_row.reshape(P * G, T),
        *every,
    ]  # fmt: skip


def slots(length: Array, S: int, tokens: Array, T: int) -> tuple[Array, Array]:
    """Return which slots hold input tokens [P*S + P*G*(T-1)], and which hold target tokens [P*G*T]."""
    within = np.arange(T) < tokens[..., None]
    read = [(np.arange(S) < length[:, None]).ravel(), within[..., 1:].ravel()]
    return np.concatenate(read), within.ravel()


def sizes(read: Array, targets: Array) -> tuple[int, int]:
    """Return N and M: one more than the slots with tokens, or all slots if nearly all have tokens.

    Args:
        read: [P*S + P*G*(T-1)].
        targets: [P*G*T].
    """
    totals, tokens = (len(read), len(targets)), (int(read.sum()), int(targets.sum()))
    if max(tokens[0] / totals[0], tokens[1] / totals[1]) > FULL:
        return totals
    return min(tokens[0] + 1, totals[0]), min(max(tokens[1] + 1, -(-totals[1] // LEAST)), totals[1])


def _rows(real: Array, count: int) -> tuple[Array, Array]:
    """Return the first `count` slots in order, padding last, and the row of each slot among them."""
    chosen = np.sort(np.argsort(~real, kind="stable")[:count])
    padding = np.flatnonzero(~real[chosen])
    row = np.full(len(real), padding[0] if len(padding) else 0)
    row[chosen] = np.arange(count)
    return chosen, row
