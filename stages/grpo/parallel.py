"""The position of each card in a layout, and the transfer of weights between layouts.

Ranks are laid out as MindSpore's strategy files say: device matrix [data_parallel, model_parallel],
so rank = data_index * model_parallel + model_index.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from stages.base.layout import RoleLayout
from stages.grpo.collectives import Gather
from stages.models.tensor_layout import slice_of
from stages.weights.dtypes import Array
from stages.weights.strategy.files import Strategy


@dataclass(frozen=True)
class Mesh:
    """Device mesh of one role, seen from one worker."""

    data_parallel: int
    data_index: int
    model_parallel: int
    model_index: int

    @classmethod
    def from_layout(cls, layout: RoleLayout, rank: int) -> Mesh:
        """Return the position of `rank` in `layout` (data_parallel x model_parallel only)."""
        data_index, model_index = divmod(rank, layout.model_parallel)
        return cls(layout.data_parallel, data_index, layout.model_parallel, model_index)

    @property
    def model_ranks(self) -> list[int]:
        """The ranks that together hold one copy of the weights, this one among them."""
        first = self.data_index * self.model_parallel
        return list(range(first, first + self.model_parallel))

    @property
    def data_ranks(self) -> list[int]:
        """The ranks that hold the same part of the weights and see other rows."""
        return [i * self.model_parallel + self.model_index for i in range(self.data_parallel)]

    def rows(self, total: int) -> slice:
        """Return this worker's share of `total` rows (a multiple of data_parallel)."""
        share = total // self.data_parallel
        return slice(self.data_index * share, (self.data_index + 1) * share)


SINGLE = Mesh(data_parallel=1, data_index=0, model_parallel=1, model_index=0)


def reshard(
    shards: Mapping[str, Array], source: Strategy, target: Strategy, mesh: Mesh, rank: int, gather: Gather
) -> dict[str, Array]:
    """Convert this worker's shards from one layout to another, in memory; all are float32.

    Every worker of a model-parallel group gathers the shards of all others (one AllGather of everything,
    flattened), assembles the full tensors by the source strategy, and takes its part by the target strategy.
    `mesh`: this worker in the source's layout; `gather`: over mesh.model_ranks.
    """
    gathered = gather.arrays(np.concatenate([array.reshape(-1) for array in shards.values()]))
    result, start = {}, 0
    for name, shard in shards.items():
        layout = source.tensors[name]
        full = np.empty(layout.full_shape(shard.shape), np.float32)
        pieces = gathered[:, start : start + shard.size]
        for holder, piece in zip(mesh.model_ranks, pieces, strict=True):
            full[slice_of(layout, full.shape, holder, name)] = piece.reshape(shard.shape)
        result[name] = full[slice_of(target.tensors[name], full.shape, rank, name)]
        start += shard.size
    return result
