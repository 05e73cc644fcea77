"""Where one parameter's slices lie, as plain values; imports nothing, for plans ask it, too."""

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class TensorLayout:
    """Position of one parameter's slices on the cards."""

    dev_matrix: tuple[int, ...]
    """Arrangement of one pipeline stage's cards, row-major: card = ((c0·D1)+c1)·D2+c2 …"""
    tensor_map: tuple[int, ...]
    """Per tensor dimension the axis of dev_matrix that splits it, counted from the right; -1: whole."""
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
    def slices(self) -> int:
        """Different slices that the tensor map cuts the parameter into."""
        return math.prod(self.dev_matrix[-1 - axis] for axis in self.tensor_map if axis != -1)

    @property
    def optimizer_parts(self) -> int:
        """Parts that the parallel optimizer cuts each slice into; 1: it leaves it whole."""
        if not (self.opt_weight_shard_size and self.opt_weight_shard_step):
            return 1
        if self.opt_weight_shard_size != -1:
            return self.opt_weight_shard_size
        split = {len(self.dev_matrix) - 1 - axis for axis in self.tensor_map if axis != -1}
        return math.prod(size for dimension, size in enumerate(self.dev_matrix) if dimension not in split)
