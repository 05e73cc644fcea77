"""The collectives of a run: sums and gathers over the workers of a group.

Accelerators use MindSpore's. On CPUs all workers are on one machine and use sockets (links.py): MindSpore's
CPU collectives are slow, support only the group of all workers ("AllReduce only support mccl_world_group on
CPU", 2.7.0), and take 2 to 17 seconds to start.

Shapes: n rows of at most N, where a graph knows only N. A Python function is an operator of fixed shape
(ops.Custom, 2.7.0), so N rows go in and come out, of which n are sent: `sent_rows` [N] is 0, 1, …, n-1 and
then n-1 again. It is None where all shapes are known.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import Tensor, nn, ops
from mindspore.communication import GlobalComm, create_group

from stages.base.context import rank
from stages.grpo.links import MEETING_DIRECTORY, Links
from stages.grpo.operators import part
from stages.weights.dtypes import Array


@dataclass(frozen=True)
class Group:
    """Workers that communicate with each other."""

    ranks: tuple[int, ...]
    name: str
    """MindSpore's."""
    links: Links | None = None
    """Sockets between the workers; None for MindSpore's communication."""
    calls: Iterator[int] = field(default_factory=itertools.count)
    """Numbers of the calls in the graphs; each worker creates them in the same order."""

    def all_reduce(self) -> Callable[[Tensor], Tensor]:
        """Return an operator that sums the workers' tensors, of a shape with axes that the graph knows."""
        if self.links is None:
            reduce: Callable[[Tensor], Tensor] = ops.AllReduce(ops.ReduceOp.SUM, self.name)
            return reduce
        links, call = self.links, next(self.calls)
        return _host_operator(lambda x: links.sum(x, self.ranks, call), lambda shape: shape)

    def all_reduce_rows(self) -> Callable[[Tensor, Tensor], Tensor] | None:
        """Return an operator that sums the first n of N rows, given `sent_rows`; None: all_reduce does."""
        if self.links is None:
            return None
        links, ranks, call = self.links, self.ranks, next(self.calls)

        def sums(x: Array, sent_rows: Array) -> Array:
            return links.sum(x, ranks, call, int(sent_rows[-1]) + 1)

        operator: Callable[[Tensor, Tensor], Tensor] = ops.Custom(
            sums, lambda shape, _: shape, lambda dtype, _: dtype, "pyfunc"
        )
        return operator

    def all_gather(self) -> Callable[[Tensor], Tensor]:
        """Return an operator that concatenates the workers' tensors [n, ...] to [workers * n, ...]."""
        if self.links is None:
            gather: Callable[[Tensor], Tensor] = ops.AllGather(self.name)
            return gather
        links, ranks, call = self.links, self.ranks, next(self.calls)
        return _host_operator(
            lambda x: links.gather(x, ranks, call), lambda shape: (len(ranks) * shape[0], *shape[1:])
        )


def _host_operator(
    compute: Callable[[Array], Array], shape: Callable[[tuple[int, ...]], tuple[int, ...]]
) -> Callable[[Tensor], Tensor]:
    """Return a graph operator for a function of one numpy array; `shape` computes the result's shape."""
    operator: Callable[[Tensor], Tensor] = ops.Custom(compute, shape, lambda dtype: dtype, "pyfunc")
    return operator


class Groups:
    """Groups by their ranks, each created once.

    Creating a group is collective over its members only: workers may create different groups, but the members
    of several groups must create them in the same order.
    """

    def __init__(self, world: int) -> None:
        """Connect all workers; all must call this."""
        self.world = world
        self.links: Links | None = None
        if world > 1 and ms.get_context("device_target") == "CPU":
            if MEETING_DIRECTORY not in os.environ:
                message = f"{MEETING_DIRECTORY} is not set: workers on CPUs are started by grpoflow run"
                raise RuntimeError(message)
            self.links = Links(rank(), world, Path(os.environ[MEETING_DIRECTORY]))
        self._groups: dict[tuple[int, ...], Group] = {}

    def get(self, ranks: list[int]) -> Group | None:
        """Return the group of `ranks`; None if it has only one member."""
        key = tuple(ranks)
        if len(key) == 1:
            return None
        if key not in self._groups:
            self._groups[key] = self._make(key)
        return self._groups[key]

    def _make(self, ranks: tuple[int, ...]) -> Group:
        if self.links is not None or len(ranks) == self.world:
            return Group(ranks, GlobalComm.WORLD_COMM_GROUP, self.links)
        name = "ranks_" + "_".join(map(str, ranks))
        create_group(name, list(ranks))
        return Group(ranks, name)


class AllReduce(nn.Cell):
    """Sum over a group, on all of its workers."""

    def __init__(self, group: Group) -> None:
        super().__init__()
        self.reduce = group.all_reduce()
        self.reduce_rows: Any = group.all_reduce_rows()
        self.any_size = self.reduce_rows is None

    def construct(self, x: Tensor, sent_rows: Tensor | None) -> Tensor:
        """Sum the workers' `x` [n, ...]."""
        if sent_rows is None or self.any_size:
            return self.reduce(x)
        return part(self.reduce_rows(ops.gather(x, sent_rows, 0), sent_rows), 0, 0, x.shape[0])


class CopyToGroup(nn.Cell):
    """Identity forward, sum over the group backward: enters a block that is split over the group.

    Source: f of Megatron-LM, Shoeybi et al. 2019, arXiv:1909.08053, section 3 and figure 3.
    """

    def __init__(self, group: Group) -> None:
        super().__init__()
        self.all_reduce = AllReduce(group)

    def construct(self, x: Tensor, sent_rows: Tensor | None) -> Tensor:
        """Return `x`."""
        return x

    def bprop(
        self, x: Tensor, sent_rows: Tensor | None, out: Tensor, dout: Tensor
    ) -> tuple[Tensor, Tensor | None]:
        """Sum the gradients of all cards' parts of the block."""
        return self.all_reduce(dout, sent_rows), sent_rows


class SumOverGroup(nn.Cell):
    """Sum over the group forward, identity backward: leaves a split block. Source: Megatron-LM's g."""

    def __init__(self, group: Group) -> None:
        super().__init__()
        self.all_reduce = AllReduce(group)

    def construct(self, x: Tensor, sent_rows: Tensor | None) -> Tensor:
        """Sum the cards' `x`."""
        return self.all_reduce(x, sent_rows)

    def bprop(
        self, x: Tensor, sent_rows: Tensor | None, out: Tensor, dout: Tensor
    ) -> tuple[Tensor, Tensor | None]:
        """Return `dout`, which is complete on every card."""
        return dout, sent_rows


class Identity(nn.Cell):
    """Identity operator at the boundary of a block that is not shared with other cards."""

    def construct(self, x: Tensor, sent_rows: Tensor | None) -> Tensor:
        """Return `x`."""
        return x


class Gather:
    """Arrays of all workers of a group, on all of them; the identity without a group."""

    def __init__(self, group: Group | None) -> None:
        """Prepare gathering among the group's workers; all of them must call this."""
        self.group, self.size = group, len(group.ranks) if group else 1
        self.call = next(group.calls) if group else 0

    def arrays(self, array: Array) -> Array:
        """Gather an array [n, ...] (float32 or int32) of each worker to [size, n, ...], in order of ranks.

        Graphs that were started must have ended: read one of their results before.
        """
        if self.group is None:
            return array[None]
        if self.group.links is not None:
            gathered = self.group.links.gather(array, self.group.ranks, self.call)
        else:
            gathered = ops.AllGather(self.group.name)(Tensor(np.ascontiguousarray(array))).asnumpy()
        return gathered.reshape(self.size, *array.shape)
