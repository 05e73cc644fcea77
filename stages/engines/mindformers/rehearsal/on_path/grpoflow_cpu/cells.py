"""Parts of networks on a CPU: products of experts, and the logits of one position.

Shapes: B groups of tokens, E experts, N tokens of an expert, I and O elements before and after.
"""

from __future__ import annotations

from typing import Any

from mindspore import Tensor, nn, ops
from mindspore import dtype as mstype


class ExpertProduct(nn.Cell):  # type: ignore[misc]
    """Replacement of Linear.matmul for layers with experts: BatchMatMul does not broadcast on a CPU."""

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


class LastLogits(nn.Cell):  # type: ignore[misc]
    """Logits of one position per row: [rows, positions, vocabulary] would not fit into memory."""

    def __init__(self, network: Any) -> None:
        super().__init__(auto_prefix=False)
        self.backbone, self.head = network.model, network.lm_head

    def states(self, tokens: Tensor) -> Tensor:
        """Return the states [rows, positions, elements] after the last layer."""
        return self.backbone(tokens)

    def construct(self, tokens: Tensor, last: Tensor) -> Tensor:
        """Return logits [rows, vocabulary] at `last` [rows] of tokens [rows, positions] int32."""
        rows = ops.arange(0, tokens.shape[0], 1)
        return self.head(self.states(tokens)[rows, last]).astype(mstype.float32)
