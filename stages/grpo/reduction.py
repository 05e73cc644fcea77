"""Sums that come out the same to the last bit, run after run."""

from __future__ import annotations

from mindspore import Tensor, ops

ROW = 1024


def ordered_sum(x: Tensor) -> Tensor:
    """Sum of all elements of `x`, a scalar, always added in the same order.

    MindSpore's ReduceSum cuts a long vector into as many parts as it found fastest by trying: two runs
    of one program add in different orders (seen with 2.7.0 on a CPU from about 200,000 elements). A sum
    over short rows is cut between rows only.
    """
    x = x.reshape((-1,))
    while x.shape[0] > ROW:
        whole = x.shape[0] // ROW * ROW
        rows = x[:whole].reshape((-1, ROW)).sum(-1)
        x = rows if whole == x.shape[0] else ops.concat((rows, x[whole:]))
    return x.sum()
