"""Which part of a full tensor a rank holds, from the strategy alone.

Source: mindspore 2.7.0, parallel/_tensor.py: _load_tensor_by_layout, _construct_tensor_layout_for_opt_shard.
The parallel optimizer cuts dimension 0 of the slice once more, among the ranks that hold the same
slice, in the order of their ranks.
"""

import math
from collections.abc import Sequence

from stages.base.errors import InputError
from stages.models.tensor_layout import TensorLayout
from stages.weights.strategy.files import Strategy, read_strategy

__all__ = ["Strategy", "TensorLayout", "read_strategy", "slice_of", "slice_shape"]


def slice_of(
    layout: TensorLayout, shape: Sequence[int], rank: int, name: str = "tensor"
) -> tuple[slice, ...]:
    """Return the part of a full tensor that `rank` holds.

    Args:
        layout: the tensor's layout.
        shape: the full tensor's shape.
        rank: global rank; its pipeline stage is rank // cards per stage.
        name: for messages.

    Returns:
        One slice per dimension, with explicit start and stop.

    Raises:
        InputError: a dimension is not divisible by its number of slices, or the ranks differ.
    """
    if len(shape) != len(layout.tensor_map):
        rule = f"must have {len(layout.tensor_map)} dimensions as its tensor_map in the strategy"
        raise InputError(name, list(shape), rule)
    coordinates = _coordinates(rank % layout.cards, layout.dev_matrix)
    slices = []
    for size, axis in zip(shape, layout.tensor_map, strict=True):
        parts, part = _axis(layout, coordinates, axis)
        slices.append(_part(size, parts, part, name, shape))
    # Neighbours in the replica group share a slice: of replicas 0 1 2 3 with size 2, 0 and 1 hold
    # the two halves, and 2 and 3 hold them again.
    parts = layout.optimizer_parts
    if parts > 1 and shape:
        first, part = slices[0], _replica(layout, coordinates) % parts
        inner = _part(first.stop - first.start, parts, part, name, shape)
        slices[0] = slice(first.start + inner.start, first.start + inner.stop)
    return tuple(slices)


def slice_shape(slices: Sequence[slice]) -> tuple[int, ...]:
    """Shape of what `slice_of` selects."""
    return tuple(extent.stop - extent.start for extent in slices)


def _axis(layout: TensorLayout, coordinates: Sequence[int], axis: int) -> tuple[int, int]:
    """Return the number of parts along one tensor dimension, and the index of this card's part."""
    if axis == -1:
        return 1, 0
    dimension = len(layout.dev_matrix) - 1 - axis
    return layout.dev_matrix[dimension], coordinates[dimension]


def _replica(layout: TensorLayout, coordinates: Sequence[int]) -> int:
    """Return this card's index among those that hold the same slice."""
    split = {len(layout.dev_matrix) - 1 - axis for axis in layout.tensor_map if axis != -1}
    index = 0
    for dimension, size in enumerate(layout.dev_matrix):
        if dimension not in split:
            index = index * size + coordinates[dimension]
    return index


def _coordinates(card: int, dev_matrix: Sequence[int]) -> list[int]:
    result = []
    for i, size in enumerate(dev_matrix):
        result.append(card // math.prod(dev_matrix[i + 1 :]) % size)
    return result


def _part(size: int, parts: int, part: int, name: str, shape: Sequence[int]) -> slice:
    if size % parts:
        rule = f"{size} is not divisible into {parts} slices"
        raise InputError(name, list(shape), rule, "the strategy belongs to another model")
    length = size // parts
    return slice(part * length, (part + 1) * length)
