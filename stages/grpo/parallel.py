"""The cards of a run: who talks to whom, and the collectives that tensor parallelism needs.

Ranks are laid out as MindSpore's strategy files say: device matrix [data_parallel, model_parallel],
so rank = data_index * model_parallel + model_index.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import Tensor, nn, ops
from mindspore.communication import create_group
from numpy.typing import NDArray

from stages.layout import RoleLayout
from stages.weights.slicing import Strategy, slice_of

Array = NDArray[Any]
WORLD = "mccl_world_group"


@dataclass(frozen=True)
class Place:
    """Where one worker stands in one role's layout."""

    data_parallel: int
    data_index: int
    model_parallel: int
    model_index: int

    @classmethod
    def of(cls, layout: RoleLayout, rank: int) -> Place:
        """The place of `rank` in `layout` (data_parallel x model_parallel only)."""
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
        """This worker's share of `total` rows (a multiple of data_parallel)."""
        share = total // self.data_parallel
        return slice(self.data_index * share, (self.data_index + 1) * share)


SINGLE = Place(data_parallel=1, data_index=0, model_parallel=1, model_index=0)


class Groups:
    """Communication groups by their ranks, each created once.

    Creating a group is collective over its members only, so workers may ask for different groups,
    but those that share one must ask in the same order.
    """

    def __init__(self, world: int) -> None:
        """Take over the number of workers."""
        self.world = world
        self._names: dict[tuple[int, ...], str] = {}

    def of(self, ranks: list[int]) -> str | None:
        """The group of `ranks`; None when there is nobody else to talk to."""
        if len(ranks) == 1:
            return None
        if len(ranks) == self.world:
            return WORLD
        name = self._names.get(tuple(ranks))
        if name is None:
            name = self._names[tuple(ranks)] = "ranks_" + "_".join(map(str, ranks))
            create_group(name, ranks)
        return name


class CopyToGroup(nn.Cell):
    """Identity forward, sum over the group backward: enters a block that is split over the group.

    Source: f of Megatron-LM, Shoeybi et al. 2019, arXiv:1909.08053, section 3 and figure 3.
    """

    def __init__(self, group: str) -> None:
        """Take over the group's name."""
        super().__init__()
        self.all_reduce = ops.AllReduce(ops.ReduceOp.SUM, group)

    def construct(self, x: Tensor) -> Tensor:
        """`x` as it is."""
        return x

    def bprop(self, x: Tensor, out: Tensor, dout: Tensor) -> tuple[Tensor]:
        """Sum of what each card's part of the block contributes."""
        return (self.all_reduce(dout),)


class SumOverGroup(nn.Cell):
    """Sum over the group forward, identity backward: leaves a split block. Source: Megatron-LM's g."""

    def __init__(self, group: str) -> None:
        """Take over the group's name."""
        super().__init__()
        self.all_reduce = ops.AllReduce(ops.ReduceOp.SUM, group)

    def construct(self, x: Tensor) -> Tensor:
        """Sum of the cards' `x`."""
        return self.all_reduce(x)

    def bprop(self, x: Tensor, out: Tensor, dout: Tensor) -> tuple[Tensor]:
        """`dout` as it is: every card has all of it."""
        return (dout,)


class Gather(nn.Cell):
    """Arrays of all workers of a group, on all of them; the identity without a group."""

    def __init__(self, group: str | None, size: int) -> None:
        """Take over the group's name and its number of workers."""
        super().__init__()
        self.size = size
        self.all_gather: Any = ops.AllGather(group) if group else None

    @ms.jit
    def construct(self, x: Tensor) -> Tensor:
        """X [n, ...] of each worker to [size * n, ...]."""
        return self.all_gather(x)

    def arrays(self, array: Array) -> Array:
        """Array [n, ...] of each worker, float32 or int32, to [size, n, ...], in the order of ranks."""
        if self.all_gather is None:
            return array[None]
        gathered: Array = self(Tensor(np.ascontiguousarray(array))).asnumpy()
        return gathered.reshape(self.size, *array.shape)


class Reshard:
    """Carries the policy from the layout that it is trained in to the one that generates, in memory.

    Every worker of a model-parallel group hands its shards to the others (one AllGather of everything,
    flattened), puts the full tensors together as the source strategy says, and keeps its own part as
    the target strategy says. Where both are the same, nothing moves.
    """

    def __init__(self, source: Strategy, target: Strategy, place: Place, rank: int, gather: Gather) -> None:
        """Take over the two layouts.

        Args:
            source: strategy of the training layout.
            target: strategy of the generating layout.
            place: this worker in the training layout.
            rank: this worker's rank.
            gather: over place.model_ranks.
        """
        self.source, self.target, self.place, self.rank, self.gather = source, target, place, rank, gather

    def __call__(self, shards: Mapping[str, Array]) -> dict[str, Array]:
        """This worker's shards in the source layout to its shards in the target layout; all float32."""
        flat = np.concatenate([array.reshape(-1) for array in shards.values()])
        everyone = self.gather.arrays(flat)
        result, start = {}, 0
        for name, shard in shards.items():
            full = self._full(name, shard.shape, everyone[:, start : start + shard.size])
            result[name] = full[slice_of(self.target.tensors[name], full.shape, self.rank, name)]
            start += shard.size
        return result

    def _full(self, name: str, shape: tuple[int, ...], pieces: Array) -> Array:
        layout = self.source.tensors[name]
        axes = [
            1 if axis == -1 else layout.dev_matrix[len(layout.dev_matrix) - 1 - axis]
            for axis in layout.tensor_map
        ]
        full = np.empty([size * parts for size, parts in zip(shape, axes, strict=True)], np.float32)
        for rank, piece in zip(self.place.model_ranks, pieces, strict=True):
            full[slice_of(layout, full.shape, rank, name)] = piece.reshape(shape)
        return full
