"""The tokens of a batch without its padding: one list for norms and products, and where each stands in a row.

Shapes: P prompts of S slots, G completions of each of T slots, of which the last is predicted and never
read; N slots that are computed and M tokens whose log-probability is wanted, with some padding: each pair is
a graph of its own, compiled once for some seconds, so both are the same PARTS-ths of all slots.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

MODEL_INPUTS = 9
"""Arrays of `packed`."""
PARTS = 4
"""Steps in which N and M grow together."""


def packed(
    prompt: Array, length: Array, completion: Array, tokens: Array, sizes: tuple[int, int]
) -> list[Array]:
    """What CausalLM.construct takes.

    Args:
        prompt: ids [P, S].
        length: tokens of the prompts [P], at least 1.
        completion: ids [P, G, T].
        tokens: of the completions [P, G], 0 allowed; what comes after them is padding.
        sizes: N and M, each all slots or more than hold a token.

    Returns:
        ids and positions of the computed slots [N]; length; the row among these of each prompt slot [P, S]
        and completion slot [P, G, T-1]; the slot of each row [N]; the row before each wanted token [M]; that
        token [M]; the wanted token of each completion slot [P*G, T]. Slots of padding lead to padding.
    """
    (P, S), (G, T) = prompt.shape, completion.shape[1:]
    read, wanted = slots(length, S, tokens, T)
    slot, row = _rows(read, sizes[0])
    target, place = _rows(wanted, sizes[1])
    ids = np.concatenate([prompt.ravel(), completion[..., : T - 1].ravel()])
    after = length[:, None, None] + np.arange(T - 1)
    positions = np.concatenate([np.tile(np.arange(S), P), np.broadcast_to(after, (P, G, T - 1)).ravel()])
    last = np.broadcast_to((np.arange(P) * S + length - 1)[:, None, None], (P, G, 1))
    own = (P * S + np.arange(P * G * (T - 1))).reshape(P, G, T - 1)
    before = np.concatenate([last, own], -1).ravel()[target]
    prompt_rows, completion_rows = np.split(row, [P * S])
    return [
        ids[slot], positions[slot], length, prompt_rows.reshape(P, S), completion_rows.reshape(P, G, T - 1),
        slot, row[before], completion.ravel()[target], place.reshape(P * G, T),
    ]  # fmt: skip


def slots(length: Array, S: int, tokens: Array, T: int) -> tuple[Array, Array]:
    """Which slots hold a token that is read [P*S + P*G*(T-1)], and which one that is wanted [P*G*T]."""
    within = np.arange(T) < tokens[..., None]
    read = [(np.arange(S) < length[:, None]).ravel(), within[..., 1:].ravel()]
    return np.concatenate(read), within.ravel()


def sizes(read: Array, wanted: Array) -> tuple[int, int]:
    """N and M, equally large shares of all slots, where so many as are true in each row hold tokens.

    Args:
        read: by worker [..., P*S + P*G*(T-1)].
        wanted: by worker [..., P*G*T].
    """
    totals = read.shape[-1], wanted.shape[-1]
    part = max(
        real.sum(-1).max() * PARTS // total + 1 for real, total in zip((read, wanted), totals, strict=True)
    )
    N, M = (min(total, -(-total * int(part) // PARTS)) for total in totals)
    return N, M


def _rows(real: Array, count: int) -> tuple[Array, Array]:
    """The first `count` slots, those of padding last, in order; and the row of each slot among them."""
    chosen = np.sort(np.argsort(~real, kind="stable")[:count])
    padding = np.flatnonzero(~real[chosen])
    row = np.full(len(real), padding[0] if len(padding) else 0)
    row[chosen] = np.arange(count)
    return chosen, row
