"""The collectives of a run: sums and gathers over the workers of a group.

Workers of one machine without accelerators talk over links of their own (links.py). Where they are on
several, MindSpore's CPU kernels know the group of all workers only ("AllReduce only support mccl_world_group
on CPU", 2.7.0). There a smaller group talks through the world: every group of the same partition has a slot
of its own in what is sent, so all workers must call at the same time, which one program on all of them does.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import Tensor, nn, ops
from mindspore.communication import create_group, get_rank
from numpy.typing import NDArray

from stages.grpo import worker
from stages.grpo.links import Links

Array = NDArray[Any]
WORLD = "mccl_world_group"


@dataclass(frozen=True)
class Group:
    """Workers that talk to each other."""

    ranks: tuple[int, ...]
    name: str
    """The communication group to use."""
    slots: int
    """Groups that share it, this one among them; 1: it is this group's own."""
    slot: int
    """This group's place among them."""
    links: Links | None = None
    """What it talks over; None: MindSpore."""
    calls: Iterator[int] = field(default_factory=itertools.count)
    """Numbers of the places that talk; each worker makes them in the same order."""

    def all_reduce(self) -> Callable[[Tensor], Tensor]:
        """Sum of what the workers give."""
        if self.links is None:
            reduce: Callable[[Tensor], Tensor] = ops.AllReduce(ops.ReduceOp.SUM, self.name)
            return reduce
        links, ranks, call = self.links, self.ranks, next(self.calls)
        return _host_operator(lambda x: links.sum(x, ranks, call), lambda shape: shape)

    def all_gather(self) -> Callable[[Tensor], Tensor]:
        """What the workers give [n, ...], one after the other [workers * n, ...]."""
        if self.links is None:
            gather: Callable[[Tensor], Tensor] = ops.AllGather(self.name)
            return gather
        links, ranks, call = self.links, self.ranks, next(self.calls)
        count = len(ranks)
        return _host_operator(
            lambda x: links.gather(x, ranks, call), lambda shape: (count * shape[0], *shape[1:])
        )


def _host_operator(
    compute: Callable[[Array], Array], shape: Callable[[tuple[int, ...]], tuple[int, ...]]
) -> Callable[[Tensor], Tensor]:
    """A function of one numpy array as an operator of a graph, and the shape of its result."""
    operator: Callable[[Tensor], Tensor] = ops.Custom(compute, shape, lambda dtype: dtype, "pyfunc")
    return operator


class Groups:
    """Groups by their ranks, each created once.

    Creating a group is collective over its members only, so workers may ask for different groups,
    but those that share one must ask in the same order.
    """

    def __init__(self, world: int) -> None:
        """Take over the number of workers, all of which do so."""
        self.world = world
        self.links: Links | None = None
        if world > 1 and worker.neighbours() and ms.get_context("device_target") == "CPU":
            tell = Gather(Group(tuple(range(world)), WORLD, 1, 0))
            self.links = Links.connect(int(get_rank()), world, tell.arrays)
        self._groups: dict[tuple[int, ...], Group] = {}

    def of(self, ranks: list[int]) -> Group | None:
        """The group of `ranks`; None when there is nobody else to talk to."""
        key = tuple(ranks)
        if len(key) == 1:
            return None
        if key not in self._groups:
            self._groups[key] = self._make(key)
        return self._groups[key]

    def _make(self, ranks: tuple[int, ...]) -> Group:
        if self.links is not None:
            return Group(ranks, WORLD, 1, 0, self.links)
        if len(ranks) == self.world:
            return Group(ranks, WORLD, 1, 0)
        if ms.get_context("device_target") != "CPU":
            name = "ranks_" + "_".join(map(str, ranks))
            create_group(name, list(ranks))
            return Group(ranks, name, 1, 0)
        neighbours = ranks[1] == ranks[0] + 1  # else every slots-th rank
        slot = ranks[0] // len(ranks) if neighbours else ranks[0]
        return Group(ranks, WORLD, self.world // len(ranks), slot)


class AllReduce(nn.Cell):
    """Sum over a group, on all of its workers."""

    def __init__(self, group: Group) -> None:
        """Take over the group."""
        super().__init__()
        self.reduce = group.all_reduce()
        self.slots, self.slot = group.slots, group.slot
        self.own = Tensor(np.eye(group.slots, dtype=np.float32)[group.slot].reshape(-1, 1))

    def construct(self, x: Tensor) -> Tensor:
        """Sum of the workers' `x`."""
        if self.slots == 1:
            return self.reduce(x.reshape((-1,))).reshape(x.shape)
        return self.reduce(self.own * x.reshape((1, -1)))[self.slot].reshape(x.shape)


class AllGather(nn.Cell):
    """What all workers of a group have, on all of them."""

    def __init__(self, group: Group) -> None:
        """Take over the group."""
        super().__init__()
        self.gather = group.all_gather()
        self.slots, self.size = group.slots, len(group.ranks)
        self.ranks = Tensor(np.array(group.ranks, np.int32))

    def construct(self, x: Tensor) -> Tensor:
        """X [n, ...] of each worker to [workers * n, ...], in the order of ranks."""
        if self.slots == 1:
            return self.gather(x)
        everyone = self.gather(x).reshape((self.slots * self.size, -1))
        return ops.gather(everyone, self.ranks, 0).reshape((self.size * x.shape[0], *x.shape[1:]))


class CopyToGroup(nn.Cell):
    """Identity forward, sum over the group backward: enters a block that is split over the group.

    Source: f of Megatron-LM, Shoeybi et al. 2019, arXiv:1909.08053, section 3 and figure 3.
    """

    def __init__(self, group: Group) -> None:
        """Take over the group."""
        super().__init__()
        self.all_reduce = AllReduce(group)

    def construct(self, x: Tensor) -> Tensor:
        """`x` as it is."""
        return x

    def bprop(self, x: Tensor, out: Tensor, dout: Tensor) -> tuple[Tensor]:
        """Sum of what each card's part of the block contributes."""
        return (self.all_reduce(dout),)


class SumOverGroup(nn.Cell):
    """Sum over the group forward, identity backward: leaves a split block. Source: Megatron-LM's g."""

    def __init__(self, group: Group) -> None:
        """Take over the group."""
        super().__init__()
        self.all_reduce = AllReduce(group)

    def construct(self, x: Tensor) -> Tensor:
        """Sum of the cards' `x`."""
        return self.all_reduce(x)

    def bprop(self, x: Tensor, out: Tensor, dout: Tensor) -> tuple[Tensor]:
        """`dout` as it is: every card has all of it."""
        return (dout,)


class Gather(nn.Cell):
    """Arrays of all workers of a group, on all of them; the identity without a group."""

    def __init__(self, group: Group | None) -> None:
        """Take over the group."""
        super().__init__()
        self.size = len(group.ranks) if group else 1
        self.all_gather: Any = AllGather(group) if group else None

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
