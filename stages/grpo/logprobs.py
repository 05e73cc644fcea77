"""Log-probabilities of completions under one role's weights, each worker computing its own rows.

Shapes as in batch.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from mindspore import Tensor
from numpy.typing import NDArray

from stages.base.layout import RoleLayout
from stages.grpo.batch import Batch
from stages.grpo.collectives import Gather
from stages.grpo.packing import compiled
from stages.grpo.parallel import Mesh
from stages.grpo.setup import RoleModel

Array = NDArray[Any]


class LogProbs:
    """Log-probabilities of given completions under one role's weights."""

    def __init__(self, role: RoleModel, layout: RoleLayout, temperature: float, world: Gather) -> None:
        """Prepare the graph; `world` gathers over all workers."""
        self.mesh, self.micro_batches, self.world = role.mesh, layout.micro_batch_num, world
        model = role.model

        def forward() -> Callable[..., Tensor]:
            def logprobs(
                ids: Tensor, position: Tensor, length: Tensor, prompt: Tensor, completion: Tensor,
                slot: Tensor, before: Tensor, target: Tensor, *targets: Tensor | None,
            ) -> Tensor:  # fmt: skip
                inputs = ids, position, length, prompt, completion, slot, before, target
                return model(*inputs, *targets, temperature)[0]

            return logprobs

        self.forward = compiled(forward)

    def __call__(self, batch: Batch) -> Array:
        """Return log-probabilities [B, T] on every worker; each computes its own rows.

        They are undefined on padding.
        """
        logprobs_PGT = np.zeros(batch.completion_PGT.shape, np.float32)
        P, G, T = logprobs_PGT.shape
        for prompts in batch.micro_batches(self.mesh, self.micro_batches):
            logprobs = self.forward(*batch.take(prompts).tensors())
            logprobs_PGT[prompts] = logprobs.asnumpy().reshape(-1, G, T)
        return gather_rows(self.world, self.mesh, logprobs_PGT[self.mesh.rows(P)]).reshape(-1, T)


def gather_rows(world: Gather, mesh: Mesh, rows: Array) -> Array:
    """Gather rows [n, ...] of the data-parallel workers, in order, to [data_parallel * n, ...] everywhere."""
    per_rank = world.arrays(rows)[:: mesh.model_parallel]  # model-parallel workers all have the same rows
    return per_rank.reshape(-1, *rows.shape[1:])
