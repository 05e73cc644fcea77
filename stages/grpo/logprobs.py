"""Log-probabilities of completions under one role's weights, each worker computing its own rows."""

from __future__ import annotations

from typing import Any

import mindspore as ms
import numpy as np
from mindspore import Tensor
from numpy.typing import NDArray

from stages.grpo.buckets import buckets
from stages.grpo.collectives import Gather
from stages.grpo.learner import tensors
from stages.grpo.parallel import Place
from stages.grpo.setup import RoleModel
from stages.layout import RoleLayout

Array = NDArray[Any]


class LogProbs:
    """Log-probabilities of given completions under one role's weights."""

    def __init__(self, role: RoleModel, layout: RoleLayout, temperature: float, world: Gather) -> None:
        """Take over the role; `world` gathers over all workers."""
        self.place, self.micro_batches, self.world = role.place, layout.micro_batch_num, world
        model = role.model

        @ms.jit
        def forward(prompt: Tensor, length: Tensor, completion: Tensor) -> Tensor:
            return model(prompt, length, completion, temperature)[0]

        self.forward = forward

    def __call__(self, prompt: Array, length: Array, completion: Array, tokens: Array) -> Array:
        """Log-probabilities [P, G, T] on every worker, each having computed its own rows; 0 beyond a bucket.

        Args:
            prompt: [P, S] of all workers.
            length: [P].
            completion: [P, G, T].
            tokens: of each completion [P, G].
        """
        result = np.zeros(completion.shape, np.float32)
        for bucket in buckets(tokens, completion.shape[2], self.place, self.micro_batches):
            rows, slots = bucket.rows, bucket.slots
            batch = tensors([prompt[rows], length[rows], completion[rows, :, :slots]])
            result[rows, :, :slots] = self.forward(*batch).asnumpy().reshape(len(rows), -1, slots)
        return everyone(self.world, self.place, result[self.place.rows(len(result))])


def everyone(world: Gather, place: Place, rows: Array) -> Array:
    """Rows [n, ...] of each data-parallel worker to [data_parallel * n, ...], in order, on all workers."""
    per_rank = world.arrays(rows)[:: place.model_parallel]  # model-parallel workers all have the same rows
    return per_rank.reshape(-1, *rows.shape[1:])
