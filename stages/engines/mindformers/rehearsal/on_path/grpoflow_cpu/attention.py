"""FlashAttentionScore in plain operations, for the two layouts that mindrlhf uses.

Shapes: T tokens of all rows, N query heads, K key heads, D elements of a head, B rows, S positions.
"""

from __future__ import annotations

from typing import Any

from mindspore import Tensor, nn, ops
from mindspore import dtype as mstype

LOW = -1e9
"""Score of a masked pair; finite, so that a row in which all pairs are masked has no NaN."""


class FlashAttention(nn.Cell):  # type: ignore[misc]
    """Replacement of mindformers.modules.flash_attention.FlashAttention."""

    def __init__(
        self, head_num: int, scale_value: float = 1.0, input_layout: str = "BSH", **ignored: Any
    ) -> None:
        super().__init__()
        if input_layout not in ("TND", "BNSD"):
            raise NotImplementedError(f"a rehearsal knows no attention of layout {input_layout}")
        self.scale, self.is_packed = scale_value, input_layout == "TND"
        self.softmax = ops.Softmax(-1)
        self.times_transposed = ops.BatchMatMul(transpose_b=True)
        self.times = ops.BatchMatMul()
        self.low = Tensor(LOW, mstype.float32)

    def construct(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attn_mask: Any = None,
        alibi_mask: Any = None,
        prefix: Any = None,
        padding_mask: Any = None,
        actual_seq_qlen: Any = None,
        actual_seq_kvlen: Any = None,
    ) -> Tensor:
        """Return attention of [T, N, D] (sequences end at actual_seq_qlen), or of [B, N, S, D] by a mask."""
        if self.is_packed:
            visible = self.causal_mask(query.shape[0], actual_seq_qlen)
            query, key, value = query.swapaxes(0, 1), key.swapaxes(0, 1), value.swapaxes(0, 1)
        else:
            visible = ops.equal(attn_mask.astype(mstype.int32), 0)
        groups = query.shape[-3] // key.shape[-3]
        if groups > 1:
            key = ops.repeat_elements(key, groups, key.ndim - 3)
            value = ops.repeat_elements(value, groups, value.ndim - 3)
        scores = self.times_transposed(query, key) * self.scale
        visible, low = ops.broadcast_to(visible, scores.shape), ops.broadcast_to(self.low, scores.shape)
        mixed = self.times(self.softmax(ops.select(visible, scores, low)), value)
        return mixed.swapaxes(0, 1) if self.is_packed else mixed

    def causal_mask(self, tokens: int, ends: Tensor) -> Tensor:
        """Return [T, T]: True if position j is in the sequence of position i and not after it."""
        position = ops.arange(0, tokens, 1).astype(mstype.int32)
        ended = position.expand_dims(1) >= ends.astype(mstype.int32).expand_dims(0)
        sequence = ended.astype(mstype.int32).sum(-1)  # number of a position's sequence
        same = ops.equal(sequence.expand_dims(1), sequence.expand_dims(0))
        return ops.logical_and(same, position.expand_dims(1) >= position.expand_dims(0))

    def shard(self, parallel_config: Any) -> FlashAttention:
        """Do nothing: weights are not sharded on a CPU."""
        return self
