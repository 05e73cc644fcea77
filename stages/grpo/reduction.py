"""Sums that come out the same to the last bit, run after run."""

from __future__ import annotations

import mindspore as ms
from mindspore import Tensor, ops

from stages.grpo.operators import part

ROW = 1024


def ordered_sum(x: Tensor) -> Tensor:
    """Sum of all elements of `x`, a scalar, always added in the same order.

    MindSpore's ReduceSum cuts a long vector into as many parts as it found fastest by trying: two runs
    of one program add in different orders (seen with 2.7.0 on a CPU from about 200,000 elements). A product
    with ones is cut between rows only, and is ten times as fast as a sum over short rows.
    """
    x = x.reshape((-1,))
    while x.shape[0] > ROW:
        full = x.shape[0] // ROW * ROW
        remaining = x.shape[0] - full
        rows = ops.MatMul()(part(x, 0, 0, full).reshape((-1, ROW)), ops.ones((ROW, 1), ms.float32)).reshape(
            (-1,)
        )
        x = rows if not remaining else ops.concat((rows, part(x, 0, full, remaining)))
    return x.sum()


def row_sums(x: Tensor) -> Tensor:
    """Sum of each row of `x` [B, T], as [B, 1]."""
    return ops.MatMul()(x, ops.ones((x.shape[1], 1), ms.float32))


def square_sum(x: Tensor, pieces: int = 1) -> Tensor:
    """Sum of the squares of all elements of `x` [..., W], a scalar, always added in the same order.

    Each row's product with itself: squares of a tensor of a model's size would stay in memory with it. So
    would the copy that a change of its shape takes; in several pieces (of a matrix) it is a part's.
    """
    products = ops.BatchMatMul(transpose_b=True)
    if pieces == 1:
        rows = x.reshape((-1, 1, x.shape[-1]))
        return ordered_sum(products(rows, rows))
    size = -(-x.shape[0] // pieces)
    sums, waiting = [], x
    for start in range(0, x.shape[0], size):
        rows = part(waiting, 0, start, min(size, x.shape[0] - start)).reshape((-1, 1, x.shape[1]))
        sums.append(products(rows, rows).reshape((-1,)))
        waiting = ops.depend(x, sums[-1])
    return ordered_sum(ops.concat(sums))
