"""What an update learns from, by name.

Shapes, as suffixes of the fields: P prompts, G completions of each, B = P*G with those of one prompt
neighbours, S prompt slots, T completion slots; prompts and completions are padded on the right.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from mindspore import Tensor
from numpy.typing import NDArray

from stages.grpo.buckets import Bucket, buckets
from stages.grpo.packing import packed
from stages.grpo.parallel import Mesh


@dataclass(frozen=True)
class Batch:
    """Prompts, their completions, and what a loss reads of each token; a loss's other fields are None."""

    prompt_PS: NDArray[np.int32]
    """Ids [P, S], int32."""
    prompt_length_P: NDArray[np.int32]
    """Tokens of the prompts [P], int32, at least 1."""
    completion_PGT: NDArray[np.int32]
    """Ids [P, G, T], int32; what they are on padding does not matter."""
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
    """Tokens of the completions [P, G]; what comes after them is not computed. None: T."""
    sizes: tuple[int, int] | None = None
    """N and M of packing.packed; None: all slots."""

    def rows(self, part: Bucket) -> Batch:
        """Return the prompts of one part (a worker's, a micro-batch's) and their completions' first slots."""
        G = self.completion_PGT.shape[1]
        completions = (part.rows[:, None] * G + np.arange(G)).reshape(-1)

        def cut(array: NDArray[np.float32] | None) -> NDArray[np.float32] | None:
            """Rows of an array [B, T or 1]."""
            return None if array is None else array[completions, : part.slots]

        return Batch(
            prompt_PS=self.prompt_PS[part.rows],
            prompt_length_P=self.prompt_length_P[part.rows],
            completion_PGT=self.completion_PGT[part.rows, :, : part.slots],
            weight_BT=cut(self.weight_BT),
            mask_BT=cut(self.mask_BT),
            advantage_B1=cut(self.advantage_B1),
            old_logprobs_BT=cut(self.old_logprobs_BT),
            ref_logprobs_BT=cut(self.ref_logprobs_BT),
            tokens_PG=None if self.tokens_PG is None else self.tokens_PG[part.rows],
            sizes=part.sizes,
        )

    def buckets(self, mesh: Mesh, count: int) -> list[Bucket]:
        """Return a worker's prompts in `count` micro-batches (see buckets.buckets)."""
        slots = self.prompt_PS.shape[1], self.completion_PGT.shape[2]
        return buckets(self.prompt_length_P, self._tokens(), slots, mesh, count)

    def _tokens(self) -> NDArray[np.int32]:
        P, G, T = self.completion_PGT.shape
        return np.full((P, G), T, np.int32) if self.tokens_PG is None else self.tokens_PG

    def tensors(self, *names: str) -> list[Tensor]:
        """Return a graph's inputs: prompts and completions as CausalLM takes them, then `names`.

        A graph knows tensors by position alone: inside one, MindSpore 2.7.0 makes zeros of those in
        dict(zip(names, tensors)) or in a NamedTuple, without a word.
        """
        (P, S), (G, T) = self.prompt_PS.shape, self.completion_PGT.shape[1:]
        sizes = self.sizes or (P * (S + G * (T - 1)), P * G * T)
        model_inputs = packed(
            self.prompt_PS, self.prompt_length_P, self.completion_PGT, self._tokens(), sizes
        )
        return [_tensor(array) for array in (*model_inputs, *(getattr(self, name) for name in names))]


def _tensor(array: NDArray[Any]) -> Tensor:
    """Whole numbers as int32, others as float32."""
    dtype = np.int32 if array.dtype.kind in "iu" else np.float32
    return Tensor(np.ascontiguousarray(array.astype(dtype)))
