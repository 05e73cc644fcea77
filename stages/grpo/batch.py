"""Arrays of an update, by name.

Shapes, as suffixes of the fields: P prompts, G completions of each, B = P*G with those of one prompt
neighbours, S prompt slots, T completion slots; prompts and completions are padded on the right.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from mindspore import Tensor
from numpy.typing import NDArray

from stages.grpo.packing import packed
from stages.grpo.parallel import Mesh


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
        """Return the indices of a worker's prompts in `count` equal parts; `count` divides their number."""
        prompts = np.arange(len(self.prompt_length_P))
        return np.split(prompts[mesh.rows(len(prompts))], count)

    def take(self, prompts: NDArray[np.int64]) -> Batch:
        """Return some prompts, by their indices, with their completions."""
        G = self.completion_PGT.shape[1]
        completions = (prompts[:, None] * G + np.arange(G)).reshape(-1)
        taken: dict[str, Any] = {}
        for field in fields(self):
            array, shape = getattr(self, field.name), field.name.rpartition("_")[2]
            rows = completions if shape.startswith("B") else prompts
            taken[field.name] = None if array is None else array[rows]
        return Batch(**taken)

    def tensors(self, *names: str) -> list[Tensor]:
        """Return a graph's inputs: prompts and completions as CausalLM takes them, then `names`.

        A graph knows tensors by position alone: inside one, MindSpore 2.7.0 makes zeros of those in
        dict(zip(names, tensors)) or in a NamedTuple, without a word.
        """
        P, G, T = self.completion_PGT.shape
        tokens_PG = np.full((P, G), T, np.int32) if self.tokens_PG is None else self.tokens_PG
        model_inputs = packed(self.prompt_PS, self.prompt_length_P, self.completion_PGT, tokens_PG)
        return [_tensor(array) for array in (*model_inputs, *(getattr(self, name) for name in names))]


def _tensor(array: NDArray[Any]) -> Tensor:
    """Convert whole numbers to int32 and others to float32."""
    dtype = np.int32 if array.dtype.kind in "iu" else np.float32
    return Tensor(np.ascontiguousarray(array.astype(dtype)))
