"""The arrays of an update, by name, and their tokens without padding, as the model takes them.

Shapes, as suffixes of the fields: P prompts, G completions of each, B = P*G with those of one prompt
neighbours, S prompt slots, T completion slots, of which the last is a target but no input; prompts and
completions are padded on the right. The model computes one list of tokens for norms and products, with each
token's slot: N input slots and M target tokens, both with some padding.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import Tensor
from numpy.typing import NDArray

from stages.grpo.config import parts_of_groups
from stages.grpo.parallel import Mesh
from stages.weights.dtypes import Array

MODEL_INPUTS = 11
"""Arrays of `packed`."""
VARY = ("ids", "position", "slot", "before", "target")
"""Inputs whose length is N or M."""
LEAST = 16
"""M is at least all slots by this, so that no part of TokenLogits is empty."""
FULL = 0.9
"""All slots are computed if a larger share than this holds tokens."""
SHORTEST = 128
"""Least completion slots of a graph: attention to the padding beyond fewer takes little time."""


@dataclass(frozen=True)
class Batch:
    """Prompts, completions, and the values of each token that a loss reads; None: not read."""

    prompt_PS: NDArray[np.int32]
    """Ids [P, S], int32."""
    prompt_length_P: NDArray[np.int32]
    """Tokens of the prompts [P], int32, at least 1."""
    completion_PGT: NDArray[np.int32]
    """Ids [P, G, T], int32, of any value on padding."""
    weight_BT: NDArray[np.float32] | None = None
    """Factor of each token's loss [B, T], float32, 0 on padding."""
    mask_BT: NDArray[np.float32] | None = None
    """1 on the tokens that count [B, T], float32."""
    advantage_B1: NDArray[np.float32] | None = None
    """Advantage of each completion [B, 1], float32."""
    old_logprobs_BT: NDArray[np.float32] | None = None
    """Log-probabilities under the policy that sampled [B, T], float32."""
    ref_logprobs_BT: NDArray[np.float32] | None = None
    """Log-probabilities under the reference [B, T], float32."""
    tokens_PG: NDArray[np.int32] | None = None
    """Tokens of the completions [P, G]; later slots are not computed. None: T."""

    def micro_batches(self, mesh: Mesh, count: int) -> list[NDArray[np.int64]]:
        """Divide this worker's completions into micro-batches; return their indices, of 0 to B-1, in each.

        A micro-batch [n, g] has n groups, each with all its G completions. If `parts_of_groups` says so, it
        has n parts of groups instead, each with g completions of one prompt that have similar lengths. n is
        1 / `count` of the worker's prompts in both cases. Groups or parts whose longest completions are
        similar go together, so that `take` leaves out the slots that none of them needs; the longest come
        first. Those without a token to compute are left out, except where they fill up the last micro-batch:
        all have one size, so that few graphs are compiled.

        Args:
            mesh: this worker.
            count: divides the number of prompts.
        """
        P, G, T = self.completion_PGT.shape
        completions = np.arange(P * G).reshape(P, G)[mesh.rows(P)]
        size, needed = len(completions) // count, len(completions)
        if self.tokens_PG is None:
            return [completions[start : start + size] for start in range(0, needed, size)]
        parts = parts_of_groups(self.prompt_PS.shape[1], G, T)
        tokens = self.tokens_PG.reshape(-1)
        if parts > 1:
            order = np.argsort(-tokens[completions], axis=1, kind="stable")
            completions = np.take_along_axis(completions, order, 1).reshape(-1, G // parts)
            needed = len(completions)
        longest = tokens[completions].max(1)
        is_empty = longest == 0
        needed -= int(is_empty.sum())
        slots = np.array([slots_for(int(most), T) for most in longest])
        order = np.lexsort((-slots, is_empty))  # stable: equal ones stay in their order
        return [completions[order[start : start + size]] for start in range(0, needed, size)]

    def without(self, left_out_B: NDArray[np.bool_]) -> Batch:
        """Return the batch with no token of some completions, nor of prompts that have no others.

        Weights of the other tokens stay as they are.
        """
        assert self.weight_BT is not None and self.mask_BT is not None and self.tokens_PG is not None
        retained_B1 = ~left_out_B[:, None]
        tokens_PG = self.tokens_PG * retained_B1.reshape(self.tokens_PG.shape)
        return replace(
            self,
            weight_BT=self.weight_BT * retained_B1,
            mask_BT=self.mask_BT * retained_B1,
            tokens_PG=tokens_PG,
            prompt_length_P=np.where(
                tokens_PG.any(1), self.prompt_length_P, 1
            ),  # the model reads one at least
        )

    def take(self, completions: NDArray[np.int64]) -> Batch:
        """Return a micro-batch, as `micro_batches` gives it, with the first slots of its completions.

        The slots are as many as `slots_for` says for the longest of these completions.
        """
        G, T = self.completion_PGT.shape[1:]
        slots = (
            T if self.tokens_PG is None else slots_for(int(self.tokens_PG.reshape(-1)[completions].max()), T)
        )
        arrays: dict[str, Any] = {}
        for field in fields(self):
            array, shape = getattr(self, field.name), field.name.rpartition("_")[2]
            if array is not None:
                if shape.startswith("PG"):
                    array = array.reshape(-1, *array.shape[2:])[completions]
                else:
                    array = array[
                        completions.reshape(-1) if shape.startswith("B") else completions[:, 0] // G
                    ]
                array = array[..., :slots] if shape.endswith("T") else array
            arrays[field.name] = array
        return Batch(**arrays)

    def tensors(self, *names: str) -> list[Tensor]:
        """Return a graph's inputs: prompts and completions as CausalLM takes them, then `names`.

        A graph knows tensors by position alone: inside one, MindSpore 2.7.0 makes zeros of those in
        dict(zip(names, tensors)) or in a NamedTuple, without a word.
        """
        P, G, T = self.completion_PGT.shape
        tokens_PG = np.full((P, G), T, np.int32) if self.tokens_PG is None else self.tokens_PG
        model_inputs = packed(self.prompt_PS, self.prompt_length_P, self.completion_PGT, tokens_PG)
        return [_tensor(array) for array in (*model_inputs, *(getattr(self, name) for name in names))]


def slots_for(tokens: int, slots: int) -> int:
    """Return how many of a completion's `slots` to compute if the longest of a micro-batch has `tokens`.

    Each result is a graph of its own, which takes some seconds to compile: there are few, 3/4, 1/2, 3/8, 1/4,
    3/16 and so on of all slots, but none below SHORTEST.
    """
    whole, result = slots, slots
    while whole > SHORTEST:
        for size in (-(-whole * 3 // 4), -(-whole // 2)):
            if size >= max(tokens, SHORTEST):
                result = size
        whole = -(-whole // 2)
    return result


def _tensor(array: NDArray[Any]) -> Tensor:
    """Convert whole numbers to int32 and others to float32."""
    dtype = np.int32 if array.dtype.kind in "iu" else np.float32
    return Tensor(np.ascontiguousarray(array.astype(dtype)))


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a function of `packed`'s results twice: for any N and M (see VARY), and for full batches.

    A graph of fixed size takes 40 us less per kernel.
    """

    def graph() -> Callable[..., Any]:
        def call(
            ids: Tensor, position: Tensor, length: Tensor, prompt: Tensor, completion: Tensor, slot: Tensor,
            before: Tensor, target: Tensor, *more: Tensor | None,
        ) -> Any:  # fmt: skip
            return function(ids, position, length, prompt, completion, slot, before, target, *more)

        compiled_call: Callable[..., Any] = ms.jit(call)
        return compiled_call

    static = graph()
    some = ms.enable_dynamic(**dict.fromkeys(VARY, Tensor(shape=[None], dtype=ms.int32)))(graph())

    def run(*inputs: Tensor) -> Any:
        *_, prompt, completion, slot = inputs[:6]
        if slot.size < prompt.size + completion.size:
            return some(*inputs)
        return static(*inputs[: MODEL_INPUTS - 2], None, None, *inputs[MODEL_INPUTS:])

    return run


def packed(prompt: Array, length: Array, completion: Array, tokens: Array) -> list[Array]:
    """Return the inputs of CausalLM.construct.

    Args:
        prompt: ids [P, S].
        length: tokens of the prompts [P], at least 1.
        completion: ids [P, G, T].
        tokens: of the completions [P, G], 0 allowed; what comes after them is padding.

    Returns:
        ids and positions of the computed slots [N]; length; the row among these of each prompt slot [P, S]
        and completion slot [P, G, T-1]; the slot of each row [N]; the row before each target [M]; the target
        ids [M]; the target of each completion slot [P*G, T]; `sent_rows` (collectives.py) of N and of M rows.
        Indices of padding refer to padding.
    """
    (P, S), (G, T) = prompt.shape, completion.shape[1:]
    within = np.arange(T) < tokens[..., None]
    read = np.concatenate([(np.arange(S) < length[:, None]).ravel(), within[..., 1:].ravel()])
    targets = within.ravel()
    N, M = _sizes(read, targets)
    slot, row = _rows(read, N)
    target, target_row = _rows(targets, M)
    ids = np.concatenate([prompt.ravel(), completion[..., : T - 1].ravel()])
    after = length[:, None, None] + np.arange(T - 1)
    positions = np.concatenate([np.tile(np.arange(S), P), np.broadcast_to(after, (P, G, T - 1)).ravel()])
    last = np.broadcast_to((np.arange(P) * S + length - 1)[:, None, None], (P, G, 1))
    slots_read = (P * S + np.arange(P * G * (T - 1))).reshape(P, G, T - 1)
    before = np.concatenate([last, slots_read], -1).ravel()[target]
    prompt_rows, completion_rows = np.split(row, [P * S])
    sent_rows = [np.minimum(np.arange(len(real)), n - 1) for real, n in ((read, N), (targets, M))]
    return [
        ids[slot], positions[slot], length, prompt_rows.reshape(P, S), completion_rows.reshape(P, G, T - 1),
        slot, row[before], completion.ravel()[target], target_row.reshape(P * G, T),
        *sent_rows,
    ]  # fmt: skip


def _sizes(read: Array, targets: Array) -> tuple[int, int]:
    """Return N and M: one more than the slots with tokens, or all slots if nearly all have tokens.

    Args:
        read: True for input slots with a token [P*S + P*G*(T-1)].
        targets: True for target slots with a token [P*G*T].
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
