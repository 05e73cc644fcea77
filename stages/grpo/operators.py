"""Operators in the forms that are fast and small on MindSpore's CPU kernels (figures: tests/benchmarks).

A gradient written by hand calls operators, not functions such as ops.full or ops.softmax: the graph compiler
of 2.7.0 loses some of those ("The pointer[input] is null").

Shapes: N tokens, H hidden, V this card's vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence

import mindspore as ms
import numpy as np
from mindspore import Parameter, ParameterTuple, Tensor, nn, ops
from numpy.typing import NDArray

ROW = 1024  # elements that `ordered_sum` adds at a time

product = ops.MatMul(transpose_b=True)  # weights lie as [out, in]
plain_product = ops.MatMul()
transposed_product = ops.MatMul(transpose_a=True)
add_rows = ops.ScatterAdd()  # in place, even to what is no parameter; one thread: always in the same order


def zeros(name: str, shapes: Sequence[tuple[int, ...]]) -> ParameterTuple:
    """Return parameters without a gradient, filled with zeros."""
    # One after the other: a parameter copies its tensor, and glibc keeps on its heap what is freed later.
    return ParameterTuple(
        [
            Parameter(Tensor(np.zeros(shape, np.float32)), name=f"{name}_{i}", requires_grad=False)
            for i, shape in enumerate(shapes)
        ]
    )


def overwrite(parameter: Parameter, values: NDArray[np.generic]) -> None:
    """Copy `values` of the parameter's shape and dtype into its memory.

    Parameter.set_data gives it other memory: graphs of MindSpore 2.10.0 that have run go on with the old one.
    """
    ops.assign(parameter, Tensor.from_numpy(np.ascontiguousarray(values)))


def outer(column: Tensor, row: Tensor) -> Tensor:
    """Multiply column [N, 1] and row [1, M] to [N, M].

    Used in place of a broadcast: MindSpore's CPU kernels of + - * take four times as long when they broadcast
    and keep four copies of the result (2.7.0).
    """
    return plain_product(column, row)


@ms.jit
def added(*tensors: Tensor) -> tuple[Tensor, ...]:
    """Add the first half of the tensors to the second.

    A graph of its own, because operators outside a graph fail with NumPy 2 (MindSpore 2.10.0 on a CPU). Two
    tuples would be read as zeros: see optimizer.AdamW.construct.
    """
    count = len(tensors) // 2
    return tuple([tensors[i] + tensors[count + i] for i in range(count)])


def part(x: Tensor, axis: int, start: int, size: int) -> Tensor:
    """Return x[start : start + size] along an axis.

    MindSpore's StridedSlice takes 11 ns an element on one core; Slice copies rows (2.7.0).
    """
    axis = axis % x.ndim
    after = x.shape[axis + 1 :]
    begin = (0,) * axis + (start,) + (0,) * len(after)
    return ops.slice(x, begin, (*x.shape[:axis], size, *after))


def split_sizes(x: Tensor, axis: int, sizes: tuple[int, ...]) -> tuple[Tensor, ...]:
    """Cut `x` into consecutive parts of the given sizes along one axis."""
    parts, start = [], 0
    for size in sizes:
        parts.append(part(x, axis, start, size))
        start += size
    return tuple(parts)


def rms_norm(x: Tensor, weight: Tensor, epsilon: float) -> Tensor:
    """Scale x [N, H] to unit root mean square, times weight [H]. Source: arXiv:1910.07467, eq. 4."""
    H = x.shape[1]
    mean = plain_product(x * x, ops.full((H, 1), 1 / H, dtype=ms.float32))
    return x * outer(ops.rsqrt(mean + epsilon), weight.reshape((1, H)))


class Gated(nn.Cell):
    """SiLU(gate) * up, whose backward pass keeps these two alone.

    Source: Shazeer 2020, arXiv:2002.05202, eq. 5 (SwiGLU).
    """

    def construct(self, gate: Tensor, up: Tensor) -> Tensor:
        """Multiply gate * sigmoid(gate) and up, all [N, F]."""
        return gate * ops.sigmoid(gate) * up

    def bprop(self, gate: Tensor, up: Tensor, out: Tensor, dout: Tensor) -> tuple[Tensor, Tensor]:
        """Return the gradients of gate and up."""
        # Depends on dout, or the compiler would keep the forward pass's instead of computing it again.
        share = ops.sigmoid(ops.depend(gate, dout))
        silu = gate * share
        return dout * up * (share + silu - silu * share), dout * silu


class Lookup(nn.Cell):
    """Rows of an embedding, and the embedding itself for a tied head.

    The rows' gradient is added to the head's in place; MindSpore keeps both to the end and adds them into a
    third tensor of the same size.
    """

    def construct(self, embedding: Tensor, ids: Tensor) -> tuple[Tensor, Tensor]:
        """Return rows ids [N] of the embedding [V, H] as [N, H], and the embedding."""
        return ops.gather(embedding, ids, 0), embedding

    def bprop(
        self, embedding: Tensor, ids: Tensor, out: tuple[Tensor, ...], dout: tuple[Tensor, ...]
    ) -> tuple[Tensor, Tensor]:
        """Return the gradients of embedding and ids (none)."""
        return add_rows(dout[1], ids, dout[0]), ops.zeros_like(ids)


def ordered_sum(x: Tensor) -> Tensor:
    """Sum all elements of `x` to a scalar, always in the same order, so that runs agree to the last bit.

    MindSpore's ReduceSum tries out how many parts of a long vector are fastest, so two runs of one program
    add in different orders (2.7.0 on a CPU, from about 200,000 elements). A product with ones is cut between
    rows only, and is ten times as fast as a sum over short rows.
    """
    x = x.reshape((-1,))
    while x.shape[0] > ROW:
        full = x.shape[0] // ROW * ROW
        remaining = x.shape[0] - full
        rows = row_sums(part(x, 0, 0, full).reshape((-1, ROW))).reshape((-1,))
        x = rows if not remaining else ops.concat((rows, part(x, 0, full, remaining)))
    return x.sum()


def row_sums(x: Tensor) -> Tensor:
    """Sum each row of `x` [B, T] to [B, 1]."""
    return plain_product(x, ops.ones((x.shape[1], 1), ms.float32))


def square_sum(x: Tensor, pieces: int = 1) -> Tensor:
    """Sum the squares of all elements of `x` [..., W] to a scalar, always in the same order.

    It multiplies each row by itself, because squares of all weights would stay in memory. A matrix in several
    `pieces` is reshaped piece by piece, so that only one of them is copied at a time.
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
