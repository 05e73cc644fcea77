"""Position of one parameter's slices on the cards. Imports no numpy, because plans use it.

Source: mindspore 2.7.0, parallel/_tensor.py: _load_tensor_by_layout, _construct_tensor_layout_for_opt_shard.
The parallel optimizer divides dimension 0 of a slice once more, among the ranks that hold the same slice, in
the order of their ranks.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from stages.base.errors import InputError

Box = tuple[slice, ...]
"""A part of a tensor: one slice per dimension."""


@dataclass(frozen=True)
class TensorLayout:
    """Position of one parameter's slices on the cards."""

    dev_matrix: tuple[int, ...]
    """Arrangement of one pipeline stage's cards, row-major: card = ((c0·D1)+c1)·D2+c2 …"""
    tensor_map: tuple[int, ...]
    """Per tensor dimension the axis of dev_matrix that splits it, counted from the right; -1: not split."""
    opt_weight_shard_step: int
    """Distance between neighbouring replicas' ranks under the parallel optimizer; 0: not sharded by it."""
    opt_weight_shard_size: int
    """Replicas that share one slice under the parallel optimizer; -1: all of them; 0: not sharded."""
    stages: tuple[int, ...] = (0,)
    """Pipeline stages that hold the parameter."""

    @property
    def cards(self) -> int:
        """Cards of one pipeline stage."""
        return math.prod(self.dev_matrix)

    @property
    def parts(self) -> tuple[int, ...]:
        """Slices along each tensor dimension, without the parallel optimizer."""
        return tuple(1 if axis == -1 else self.dev_matrix[-1 - axis] for axis in self.tensor_map)

    @property
    def unsplit_axes(self) -> tuple[int, ...]:
        """Positions in dev_matrix of the axes that split no tensor dimension."""
        split = {len(self.dev_matrix) - 1 - axis for axis in self.tensor_map if axis != -1}
        return tuple(i for i in range(len(self.dev_matrix)) if i not in split)

    @property
    def replicas(self) -> int:
        """Cards of a pipeline stage that hold the same slice, without the parallel optimizer."""
        return self.cards // math.prod(self.parts)

    @property
    def optimizer_parts(self) -> int:
        """Parts that the parallel optimizer divides each slice into; 1: it does not."""
        if not (self.opt_weight_shard_size and self.opt_weight_shard_step):
            return 1
        return self.replicas if self.opt_weight_shard_size == -1 else self.opt_weight_shard_size

    def full_shape(self, slice_shape: Sequence[int]) -> tuple[int, ...]:
        """Return the full tensor's shape from one slice's."""
        parts = list(self.parts)
        if len(parts) != len(slice_shape):
            return tuple(slice_shape)  # slice_of reports the difference
        if parts:
            parts[0] *= self.optimizer_parts
        return tuple(size * count for size, count in zip(slice_shape, parts, strict=True))


def full_box(shape: Sequence[int]) -> Box:
    """Return the box of a complete tensor."""
    return tuple(slice(0, size) for size in shape)


def slice_shape(box: Box) -> tuple[int, ...]:
    """Return the shape of a box."""
    return tuple(len(range(extent.start, extent.stop, extent.step or 1)) for extent in box)


def slice_of(layout: TensorLayout, shape: Sequence[int], rank: int, name: str = "tensor") -> Box:
    """Return the part of a full tensor of `shape` that the global rank holds; `name` is for messages.

    Raise InputError if a dimension is not divisible by its number of slices, or there are others.
    """
    if len(shape) != len(layout.tensor_map):
        rule = f"must have {len(layout.tensor_map)} dimensions as its tensor_map in the strategy"
        raise InputError(name, list(shape), rule)
    dev_matrix, card = layout.dev_matrix, rank % layout.cards
    coordinates = [card // math.prod(dev_matrix[i + 1 :]) % size for i, size in enumerate(dev_matrix)]
    slices = []
    for size, axis, parts in zip(shape, layout.tensor_map, layout.parts, strict=True):
        part = 0 if axis == -1 else coordinates[-1 - axis]
        slices.append(_part(slice(0, size), parts, part, name, shape))
    # Neighbours in the replica group share a slice: of replicas 0 1 2 3 with size 2, 0 and 1 hold
    # the two halves, and 2 and 3 hold them again.
    parts = layout.optimizer_parts
    if parts > 1 and shape:
        replica = 0  # this card's index among those that hold the same slice
        for axis in layout.unsplit_axes:
            replica = replica * dev_matrix[axis] + coordinates[axis]
        slices[0] = _part(slices[0], parts, replica % parts, name, shape)
    return tuple(slices)


def _part(extent: slice, parts: int, part: int, name: str, shape: Sequence[int]) -> slice:
    """Return one of `parts` equal parts of the rows `extent`."""
    size = extent.stop - extent.start
    if size % parts:
        rule = f"{size} is not divisible into {parts} slices"
        raise InputError(name, list(shape), rule, "the strategy belongs to another model")
    length = size // parts
    return slice(extent.start + part * length, extent.start + (part + 1) * length)
