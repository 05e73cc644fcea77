"""One role's model on this worker, and log-probabilities of completions under its weights.

Shapes as in batch.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from mindspore import Tensor

from stages.base.layout import RoleLayout
from stages.grpo.batch import Batch, compiled
from stages.grpo.collectives import Gather, Groups
from stages.grpo.model import CausalLM
from stages.grpo.parallel import Mesh
from stages.grpo.parameters import parts
from stages.models.config import ModelConfig
from stages.weights.dtypes import Array
from stages.weights.strategy.files import Strategy, read_strategy


@dataclass(frozen=True)
class RoleModel:
    """One role's weights on this worker, with their layout."""

    model: CausalLM
    mesh: Mesh
    strategy: Strategy
    split: tuple[bool, ...]
    """True for each parameter of which the cards of a model-parallel group hold different parts."""


def build(
    model: ModelConfig, layout: RoleLayout, strategy: Path, rank: int, groups: Groups, positions: int,
    entropy_gradient: bool = False,
) -> RoleModel:  # fmt: skip
    """Build a role's model with zero weights, sharded as the strategy files in the directory `strategy` say.

    `positions`: longest prompt and completion together, in tokens; `entropy_gradient`: as in CausalLM.
    """
    mesh, layouts = Mesh.from_layout(layout, rank), read_strategy(strategy)
    # The tensors that a parameter is stacked from are split alike.
    split = {
        name: any(axis != -1 for axis in layouts.tensors[sources[0]].tensor_map)
        for name, sources in parts(model).items()
    }
    network = CausalLM(
        model, positions, mesh, groups.get(mesh.model_ranks),
        split_embedding=split["embedding"], split_head=split.get("head", False),
        entropy_gradient=entropy_gradient,
    )  # fmt: skip
    return RoleModel(network, mesh, layouts, tuple(split[name] for name in network.names))


class LogProbs:
    """Log-probabilities of given completions under one role's weights."""

    def __init__(self, role: RoleModel, layout: RoleLayout, temperature: float, world: Gather) -> None:
        self.mesh, self.micro_batches, self.world = role.mesh, layout.micro_batch_num, world
        model = role.model

        def forward(*inputs: Tensor) -> Tensor:
            return model(*inputs, temperature)[0]

        self.forward = compiled(forward)

    def __call__(self, batch: Batch) -> Array:
        """Return log-probabilities [B, T] on every worker; each computes its own rows.

        They are undefined on padding.
        """
        P, G, T = batch.completion_PGT.shape
        logprobs_BT = np.zeros((P * G, T), np.float32)
        for micro in batch.micro_batches(self.mesh, self.micro_batches):
            logprobs = self.forward(*batch.take(micro).tensors())
            logprobs_BT[micro.completions, : micro.slots] = logprobs.asnumpy()[micro.results]
        rows = logprobs_BT.reshape(P, G, T)[self.mesh.rows(P)]
        return gather_rows(self.world, self.mesh, rows).reshape(-1, T)


def gather_rows(world: Gather, mesh: Mesh, rows: Array) -> Array:
    """Gather rows [n, ...] of the data-parallel workers, in order, to [data_parallel * n, ...] everywhere."""
    per_rank = world.arrays(rows)[:: mesh.model_parallel]  # model-parallel workers all have the same rows
    return per_rank.reshape(-1, *rows.shape[1:])
