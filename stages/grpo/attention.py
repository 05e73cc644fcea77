"""Rotary embedding, and grouped-query attention over prompts and over completions that share them.

Shapes as in model.py. Prompts' keys and values are copied to each row of completions: they are much smaller
than the scores, which are then one array.
"""

from __future__ import annotations

import mindspore as ms
import numpy as np
from mindspore import Tensor, nn, ops
from numpy.typing import NDArray

from stages.grpo.operators import plain_product
from stages.models.config import ModelConfig

scores = ops.BatchMatMul(transpose_b=True)
weigh = ops.BatchMatMul()
weigh_by_key = ops.BatchMatMul(transpose_a=True)
to_shares = ops.Softmax(-1)
join = ops.Concat(-1)

HIDDEN = -1e9  # added to scores that must not count; finite, so that rows without any key stay finite


def rotary_table(model: ModelConfig, positions: int, Q: int, K: int) -> tuple[Tensor, Tensor]:
    """Return cos and signed sin [positions, (Q+2K)*D] of the rotary embedding, for Q query and K key heads.

    rotate(x) = x * cos + swap(x) * sin, where swap exchanges the halves of each head. The sign of
    transformers' rotate_half and the factor 1/sqrt(D) of the queries are in the table. Every head has its
    own columns, because broadcasting is slow (operators.outer); those of the K value heads are 1 and 0.
    Source: Su et al. 2021, arXiv:2104.09864, eq. 34; pairing of halves as in GPT-NeoX and Qwen2.
    """
    D = model.head_size
    angles = np.outer(np.arange(positions), frequencies(model))
    cos, sin = np.cos(angles), np.sin(angles)
    scale = np.repeat([D**-0.5, 1.0], [Q * D, K * D])
    tables = ((np.concatenate([cos, cos], 1), np.ones), (np.concatenate([-sin, sin], 1), np.zeros))
    wide = [
        Tensor(np.hstack([np.tile(table, Q + K) * scale, value((positions, K * D))]).astype(np.float32))
        for table, value in tables
    ]
    return wide[0], wide[1]


def frequencies(model: ModelConfig) -> NDArray[np.float64]:
    """Return the angular frequencies of a head's pairs, stretched by model.rope_scaling.

    Source: Su et al. 2021, arXiv:2104.09864, section 3.2.2; of rope_scaling: transformers 4.57,
    modeling_rope_utils.py, _compute_llama3_parameters.
    """
    D, scaling = model.head_size, model.rope_scaling
    plain: NDArray[np.float64] = model.rope_theta ** -(np.arange(0, D, 2, dtype=np.float64) / D)
    return plain if scaling is None else np.array([scaling.slowed(frequency) for frequency in plain])


def half_swap(D: int) -> Tensor:
    """Return a matrix [D, D] that exchanges the halves of a head: faster than two slices and a concat."""
    return Tensor(np.roll(np.eye(D, dtype=np.float32), D // 2, axis=1))


def prompt_mask(length: Tensor, S: int) -> Tensor:
    """Return 0 on the first length [P] of S slots and HIDDEN on padding, [P, 1, 1, S]."""
    padding = ops.arange(S).reshape((1, S)) >= length.reshape((-1, 1))
    return (padding.astype(ms.float32) * HIDDEN).reshape((-1, 1, 1, S))


def causal_mask(T: int) -> Tensor:
    """Return HIDDEN where the key (column) comes after the query (row), [1, 1, T, T]."""
    after = ops.arange(T).reshape((1, T)) > ops.arange(T).reshape((T, 1))
    return (after.astype(ms.float32) * HIDDEN).reshape((1, 1, T, T))


def row_mask(first: Tensor, K: int, R: int) -> Tensor:
    """Return HIDDEN where a key comes after the query or belongs to another completion, [P, K*J*R, W, W].

    `first` [P, J, W]: the first slot of each slot's completion.
    """
    P, J, W = first.shape
    keys, queries = ops.arange(W).reshape((1, W)), ops.arange(W).reshape((W, 1))
    hidden = ops.logical_or(keys > queries, keys < first.reshape((P * J, W, 1)))
    mask = (hidden.astype(ms.float32) * HIDDEN).reshape((P, 1, J, 1, W * W))
    return ops.broadcast_to(mask, (P, K, J, R, W * W)).reshape((P, K * J * R, W, W))


class Attention(nn.Cell):
    """Softmax attention whose backward pass keeps one array as large as the scores, the softmax.

    The scores' gradient is shares * (d_shares - sums), where `shares` is the softmax. A query's sum of
    shares * d_shares over its keys equals its output times the output's gradient, so that no array as large
    as the scores is summed; a column of ones beside the values subtracts it within the product that gives
    d_shares. Figures next to a gradient of the softmax alone: tests/benchmarks/README.md.
    Source: Dao et al. 2022, FlashAttention, arXiv:2205.14135, appendix B.2, eq. 4.
    """

    def construct(
        self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor, ones: Tensor, column: Tensor
    ) -> tuple[Tensor, Tensor]:  # fmt: skip
        """Return what is attended [N, M, D], and the shares [N, M, L] for the backward pass alone.

        Args:
            q: [N, M, D], scaled.
            k: [N, L, D].
            v: [N, L, D].
            mask: [N, M, L], added to the scores; no gradient.
            ones: [D, 1].
            column: ones [N, L, 1].
        """
        shares = to_shares(scores(q, k) + mask)
        return weigh(shares, v), shares

    def bprop(
        self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor, ones: Tensor, column: Tensor,
        out: tuple[Tensor, Tensor], dout: tuple[Tensor, Tensor],
    ) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
        """Return the gradients of q, k and v."""
        attended, shares = out
        of_attended = dout[0]
        N, M, D = q.shape
        sums = plain_product((attended * of_attended).reshape((-1, D)), ones).reshape((N, M, 1))
        of_scores = shares * scores(join((of_attended, -sums)), join((v, column)))
        return (
            weigh(of_scores, k), weigh_by_key(of_scores, q), weigh_by_key(shares, of_attended),
            mask, ones, column,
        )  # fmt: skip


class Repeat(nn.Cell):
    """Copies of keys or values for the rows of a group; their gradient is always summed in the same order."""

    def construct(self, x: Tensor, ones: Tensor) -> Tensor:
        """Repeat each matrix of `x` [N, S, D] G times to [N*G, S, D]; ones: [N, 1, G]."""
        (N, S, D), G = x.shape, ones.shape[2]
        return ops.broadcast_to(x.reshape((N, 1, S * D)), (N, G, S * D)).reshape((N * G, S, D))

    def bprop(self, x: Tensor, ones: Tensor, out: Tensor, dout: Tensor) -> tuple[Tensor, Tensor]:
        """Return the gradient of `x`."""
        (N, S, D), G = x.shape, ones.shape[2]
        return weigh(ones, dout.reshape((N, G, S * D))).reshape((N, S, D)), ones


_attention, _repeat = Attention(), Repeat()


def attend(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    """Return what is attended [N, M, D]; arguments as those of Attention."""
    ones = ops.full((q.shape[2], 1), 1.0, dtype=ms.float32)
    column = ops.full((*k.shape[:2], 1), 1.0, dtype=ms.float32)
    return _attention(q, k, v, mask, ones, column)[0]


def attend_within(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Compute attention of each prompt's tokens to those before them.

    q: [P*S, Q, D], scaled; k, v: [P*S, K, D]; mask: [P, Q, S, S], added to the scores.

    Returns:
        attended [P*S, Q*D]; keys and values as [P*K, S, D].
    """
    P, S = mask.shape[0], mask.shape[-1]
    Q, K, D = q.shape[1], k.shape[1], q.shape[2]
    R = Q // K
    q = q.reshape((P, S, K, R, D)).transpose((0, 2, 3, 1, 4)).reshape((P * K, R * S, D))
    k = k.reshape((P, S, K, D)).transpose((0, 2, 1, 3)).reshape((P * K, S, D))
    v = v.reshape((P, S, K, D)).transpose((0, 2, 1, 3)).reshape((P * K, S, D))
    attended = attend(q, k, v, mask.reshape((P * K, R * S, S))).reshape((P, Q, S, D))
    return attended.transpose((0, 2, 1, 3)).reshape((P * S, Q * D)), k, v


def attend_with_prompt(
    q: Tensor, k: Tensor, v: Tensor, keys: Tensor, values: Tensor, mask: Tensor, J: int
) -> Tensor:
    """Compute attention [P*J*W, Q*D] of the tokens in J rows of completions to their prompt and their row.

    q: [P*J*W, Q, D], scaled; k, v: [P*J*W, K, D]; the prompts' keys, values: [P*K, S, D]; mask:
    [P, Q*J, W, S+W], added to the scores, which hides later tokens and those of other completions.
    """
    P, W, S = mask.shape[0], mask.shape[2], keys.shape[1]
    Q, K, D = q.shape[1], k.shape[1], q.shape[2]
    R = Q // K
    q = q.reshape((P, J, W, K, R, D)).transpose((0, 3, 1, 4, 2, 5))
    k = k.reshape((P, J, W, K, D)).transpose((0, 3, 1, 2, 4)).reshape((P * K * J, W, D))
    v = v.reshape((P, J, W, K, D)).transpose((0, 3, 1, 2, 4)).reshape((P * K * J, W, D))
    ones = ops.full((P * K, 1, J), 1.0, dtype=ms.float32)
    k, v = ops.concat((_repeat(keys, ones), k), 1), ops.concat((_repeat(values, ones), v), 1)
    q = q.reshape((P * K * J, R * W, D))
    attended = attend(q, k, v, mask.reshape((P * K * J, R * W, S + W))).reshape((P, K, J, R, W, D))
    return attended.transpose((0, 2, 4, 1, 3, 5)).reshape((P * J * W, Q * D))
