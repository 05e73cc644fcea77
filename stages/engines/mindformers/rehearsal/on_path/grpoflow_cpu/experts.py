"""Product of experts' inputs with their weights: BatchMatMul does not broadcast on a CPU.

Shapes: B groups of tokens, E experts, N tokens of an expert, I and O elements before and after.
"""

from __future__ import annotations

from typing import Any

from mindspore import Tensor, nn, ops


class ExpertProduct(nn.Cell):  # type: ignore[misc]
    """Replacement of Linear.matmul for layers with experts."""

    def __init__(self, transpose_b: bool) -> None:
        super().__init__()
        self.times = ops.BatchMatMul(transpose_b=transpose_b)

    def construct(self, x: Tensor, weight: Tensor) -> Tensor:
        """Return [B, E, N, O] of x [B, E, N, I] and a weight [E, O, I], or [E, I, O] if not transposed."""
        groups, experts, tokens, width = x.shape
        rows = x.swapaxes(0, 1).reshape(experts, groups * tokens, width)
        return self.times(rows, weight).reshape(experts, groups, tokens, -1).swapaxes(0, 1)

    def shard(self, *strategies: Any, **settings: Any) -> ExpertProduct:
        """Do nothing: weights are not sharded on a CPU."""
        return self

    def add_prim_attr(self, *attributes: Any) -> ExpertProduct:
        """Do nothing: the attributes are about sharding."""
        return self
