"""The arrays of an update, by name, and their tokens without padding, as the model takes them.

Shapes, as suffixes of the fields: P prompts, G completions of each, B = P*G with those of one prompt
neighbours, S prompt slots, T completion slots, of which the last is a target but no input, J rows of W slots
for the inputs of a prompt's completions (packing.py); prompts and completions are padded on the right. The
model computes one list of tokens for norms and products, with each token's slot: N input slots and M target
tokens, both with some padding.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import Tensor
from numpy.typing import NDArray

from stages.grpo.packing import MicroBatch, Rows, micro_batches, separate
from stages.grpo.parallel import Mesh
from stages.weights.dtypes import Array

MODEL_INPUTS = 12
"""Arrays of `packed`."""
VARY = ("ids", "position", "slot", "before", "target")
"""Inputs whose length is N or M."""
LEAST = 16
"""M is at least all slots by this, so that no part of TokenLogits is empty."""
FULL = 0.9
"""All slots are computed if a larger share than this holds tokens."""


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
    rows: Rows | None = None
    """Where the completions lie in attention; None: each has a row."""

    def micro_batches(self, mesh: Mesh, count: int) -> list[MicroBatch]:
        """Divide this worker's completions into micro-batches (packing.py).

        `count`: the layout's micro_batch_num, which divides the number of this worker's prompts.
        """
        P, G, T = self.completion_PGT.shape
        prompts = np.arange(P)[mesh.rows(P)]
        return micro_batches(prompts, self.tokens_PG, len(prompts) // count, self.prompt_PS.shape[1], G, T)

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

    def take(self, micro: MicroBatch) -> Batch:
        """Return a micro-batch, with the first slots of its completions; 0 where it has no completion."""
        missing = micro.completion_nC < 0
        arrays: dict[str, Any] = {}
        for field in fields(self):
            array, shape = getattr(self, field.name), field.name.rpartition("_")[2]
            if array is None or field.name == "rows":
                continue
            if shape.startswith("P") and not shape.startswith("PG"):
                array = array[micro.prompt_n]
            elif shape.startswith("PG"):
                array = array.reshape(-1, *array.shape[2:])[micro.completion_nC]
                array[missing] = 0
            else:
                array = array[micro.completion_nC.reshape(-1)]
                array[missing.reshape(-1)] = 0
            arrays[field.name] = array[..., : micro.slots] if shape.endswith("T") else array
        # the model reads one token of a prompt at least
        arrays["prompt_length_P"] = np.where(missing.all(1), 1, arrays["prompt_length_P"])
        return Batch(**arrays, rows=micro.rows)

    def tensors(self, *names: str) -> list[Tensor]:
        """Return a graph's inputs: prompts and completions as CausalLM takes them, then `names`.

        A graph knows tensors by position alone: inside one, MindSpore 2.7.0 makes zeros of those in
        dict(zip(names, tensors)) or in a NamedTuple, without a word.
        """
        P, G, T = self.completion_PGT.shape
        tokens_PG = np.full((P, G), T, np.int32) if self.tokens_PG is None else self.tokens_PG
        rows = self.rows or separate(P, G, T)
        model_inputs = packed(self.prompt_PS, self.prompt_length_P, self.completion_PGT, tokens_PG, rows)
        return [_tensor(array) for array in (*model_inputs, *(getattr(self, name) for name in names))]


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
            ids: Tensor, position: Tensor, length: Tensor, prompt: Tensor, completion: Tensor, first: Tensor,
            slot: Tensor, before: Tensor, target: Tensor, *more: Tensor | None,
        ) -> Any:  # fmt: skip
            return function(ids, position, length, prompt, completion, first, slot, before, target, *more)

        compiled_call: Callable[..., Any] = ms.jit(call)
        return compiled_call

    static = graph()
    some = ms.enable_dynamic(**dict.fromkeys(VARY, Tensor(shape=[None], dtype=ms.int32)))(graph())

    def run(*inputs: Tensor) -> Any:
        *_, prompt, completion, _, slot = inputs[:7]
        if slot.size < prompt.size + completion.size:
            return some(*inputs)
        return static(*inputs[: MODEL_INPUTS - 2], None, None, *inputs[MODEL_INPUTS:])

    return run


def packed(prompt: Array, length: Array, completion: Array, tokens: Array, rows: Rows) -> list[Array]:
    """Return the inputs of CausalLM.construct.

    Args:
        prompt: ids [P, S].
        length: tokens of the prompts [P], at least 1.
        completion: ids [P, G, T].
        tokens: of the completions [P, G], 0 allowed; what comes after them is padding.
        rows: where the completions lie.

    Returns:
        ids and positions of the computed slots [N]; length; the row among these of each prompt slot [P, S]
        and completion slot [P, J, W]; the slot in its row of the first token of each slot's completion
        [P, J, W]; the slot of each row [N]; the row before each target [M]; the target ids [M]; the target of
        each completion's token [P*G, T]; `sent_rows` (collectives.py) of N and of M rows. Indices of padding
        refer to padding.
    """
    (P, S), (G, T), (J, W) = prompt.shape, completion.shape[1:], (rows.count, rows.width)
    within = np.arange(T) < tokens[..., None]
    targets = within.ravel()
    row_of_all = np.arange(P)[:, None] * J + rows.row_nC
    slot_of_token = (P * S + row_of_all * W + rows.start_nC)[..., None] + np.arange(T - 1)
    inputs = within[..., 1:]  # a token is an input if another one follows
    slots, most = P * (S + J * W), P * min(G * T, J * W + G)  # of inputs; targets that these slots allow
    read, ids, positions, first = (np.zeros(slots, int) for _ in range(4))

    def fill(array: Array, of_prompts: Array, of_completions: Array) -> None:
        array[: P * S] = np.broadcast_to(of_prompts, (P, S)).ravel()
        array[slot_of_token[inputs]] = np.broadcast_to(of_completions, inputs.shape)[inputs]

    fill(read, np.arange(S) < length[:, None], np.array(1))
    fill(ids, prompt, completion[..., : T - 1])
    fill(positions, np.arange(S), length[:, None, None] + np.arange(T - 1))
    first[P * S :] = np.tile(np.arange(W), P * J)  # empty slots attend to themselves
    fill(first, np.array(0), rows.start_nC[..., None])
    N, M = _sizes(int(read.sum()), slots, int(targets.sum()), most)
    slot, row = _rows(read > 0, N)
    target, target_row = _rows(targets, M)
    last = np.broadcast_to((np.arange(P) * S + length - 1)[:, None, None], (P, G, 1))
    before = np.concatenate([last, np.minimum(slot_of_token, slots - 1)], -1).ravel()[target]
    prompt_rows, completion_rows = np.split(row, [P * S])
    sent_rows = [np.minimum(np.arange(size), n - 1) for size, n in ((slots, N), (most, M))]
    return [
        ids[slot], positions[slot], length, prompt_rows.reshape(P, S), completion_rows.reshape(P, J, W),
        first[P * S :].reshape(P, J, W), slot, row[before], completion.ravel()[target],
        target_row.reshape(P * G, T), *sent_rows,
    ]  # fmt: skip


def _sizes(inputs: int, slots: int, targets: int, most: int) -> tuple[int, int]:
    """Return N and M: one more than the tokens, or all slots if nearly all have tokens.

    `inputs` of the `slots` and `targets` of at `most` so many are tokens.
    """
    if max(inputs / slots, targets / most) > FULL:
        return slots, most
    return min(inputs + 1, slots), min(max(targets + 1, -(-most // LEAST)), most)


def _rows(real: Array, count: int) -> tuple[Array, Array]:
    """Return the first `count` slots in order, padding last, and the row of each slot among them."""
    chosen = np.sort(np.argsort(~real, kind="stable")[:count])
    padding = np.flatnonzero(~real[chosen])
    row = np.full(len(real), padding[0] if len(padding) else 0)
    row[chosen] = np.arange(count)
    return chosen, row
