"""Operators as MindSpore's CPU kernels like them: what they are made of decides time and memory.

A gradient written by hand calls operators, not functions such as ops.full or ops.softmax: the graph compiler
of 2.7.0 loses some of those ("The pointer[input] is null").

Shapes: N tokens, H hidden, V this card's vocabulary.
"""

from __future__ import annotations

import mindspore as ms
from mindspore import Tensor, nn, ops

ROW = 1024  # elements that `ordered_sum` adds at a time

product = ops.MatMul(transpose_b=True)  # weights lie as [out, in]
plain_product = ops.MatMul()
shares = ops.Softmax(-1)
transposed_product = ops.MatMul(transpose_a=True)
add_rows = ops.ScatterAdd()  # in place, even to what is no parameter; one thread: always in the same order


def outer(column: Tensor, row: Tensor) -> Tensor:
    """Column [N, 1] times row [1, M]: [N, M].

    Stands where a broadcast would be shorter: MindSpore's CPU kernels of + - * keep four copies of the
    result for good and take four times as long when they must stretch an operand (2.7.0); a product is
    not slower than the memory, neither forward nor backward.
    """
    return plain_product(column, row)


def part(x: Tensor, axis: int, start: int, size: int) -> Tensor:
    """`size` neighbours of `x` along an axis, from `start` on.

    Stands where x[start : start + size] would be shorter: MindSpore's StridedSlice takes 11 ns an element on
    one core where its Slice copies rows (2.7.0).
    """
    axis = axis % x.ndim
    after = x.shape[axis + 1 :]
    begin = (0,) * axis + (start,) + (0,) * len(after)
    return ops.slice(x, begin, (*x.shape[:axis], size, *after))


class Cut(nn.Cell):
    """Consecutive parts of a tensor along one axis.

    The gradient joins those of the parts; MindSpore's own fills each up with zeros and adds them.
    """

    def __init__(self, axis: int) -> None:
        """Take over the axis."""
        super().__init__()
        self.axis = axis

    def construct(self, x: Tensor, sizes: tuple[int, ...]) -> tuple[Tensor, ...]:
        """Parts of `x` that are `sizes` long."""
        parts, start = [], 0
        for size in sizes:
            parts.append(part(x, self.axis, start, size))
            start += size
        return tuple(parts)

    def bprop(
        self, x: Tensor, sizes: tuple[int, ...], out: tuple[Tensor, ...], dout: tuple[Tensor, ...]
    ) -> tuple[Tensor, tuple[int, ...]]:
        """Gradient of `x`."""
        return ops.concat(dout, self.axis), sizes


cut_rows, cut_columns = Cut(0), Cut(-1)


class Spread(nn.Cell):
    """Rows of a list for each slot of prompts and completions, as packing.packed numbers them.

    The gradient takes rows as well: no row stands in two slots whose gradient is not 0. MindSpore's own adds
    them up one after the other, in three times the time.
    """

    def construct(self, x: Tensor, prompt: Tensor, completion: Tensor, slot: Tensor) -> tuple[Tensor, Tensor]:
        """Rows `prompt` [P*S] and `completion` [P*G*T] of `x` [N, ...], which came from `slot` [N]."""
        return ops.gather(x, prompt, 0), ops.gather(x, completion, 0)

    def bprop(
        self, x: Tensor, prompt: Tensor, completion: Tensor, slot: Tensor, out: tuple[Tensor, Tensor],
        dout: tuple[Tensor, Tensor],
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
        """Gradient of `x`."""
        return ops.gather(ops.concat(dout), slot, 0), prompt, completion, slot


class Collect(nn.Cell):
    """The inverse of Spread."""

    def construct(
        self, first: Tensor, second: Tensor, prompt: Tensor, completion: Tensor, slot: Tensor
    ) -> Tensor:
        """Rows `slot` [N] of what prompts `first` [P*S, ...] and completions `rest` [P*G*T, ...] hold."""
        return ops.gather(ops.concat((first, second)), slot, 0)

    def bprop(
        self, first: Tensor, second: Tensor, prompt: Tensor, completion: Tensor, slot: Tensor, out: Tensor,
        dout: Tensor,
    ) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
        """Gradients of both."""
        return ops.gather(dout, prompt, 0), ops.gather(dout, completion, 0), prompt, completion, slot


spread, collect = Spread(), Collect()


def rms_norm(x: Tensor, weight: Tensor, epsilon: float) -> Tensor:
    """X [N, H] with unit root mean square per token, times weight [H]. Source: arXiv:1910.07467, eq. 4."""
    H = x.shape[1]
    mean = plain_product(x * x, ops.full((H, 1), 1 / H, dtype=ms.float32))
    return x * outer(ops.rsqrt(mean + epsilon), weight.reshape((1, H)))


class Softmax(nn.Cell):
    """Shares along the last axis.

    The gradient sums and stretches by products: MindSpore's own takes three times as long, and keeps what it
    has stretched.
    """

    def construct(self, x: Tensor, ones: Tensor) -> Tensor:
        """Shares of `x` [..., L], and ones [L, 1]."""
        return shares(x)

    def bprop(self, x: Tensor, ones: Tensor, out: Tensor, dout: Tensor) -> tuple[Tensor, Tensor]:
        """Gradient of `x`."""
        weighted = out * dout
        sums = plain_product(weighted.reshape((-1, x.shape[-1])), ones)
        return weighted - out * product(sums, ones).reshape(out.shape), ones


_softmax = Softmax()


def softmax(x: Tensor) -> Tensor:
    """Shares of `x` along its last axis."""
    return _softmax(x, ops.full((x.shape[-1], 1), 1.0, dtype=ms.float32))


class Lookup(nn.Cell):
    """Rows of an embedding, and the embedding for a head that is tied to it.

    The rows' gradient is added to what the head gave: two gradients of one weight are both kept to the end
    and then added to a third of its size.
    """

    def construct(self, embedding: Tensor, ids: Tensor) -> tuple[Tensor, Tensor]:
        """Embedding [V, H] and ids [N] to rows [N, H] and the embedding."""
        return ops.gather(embedding, ids, 0), embedding

    def bprop(
        self, embedding: Tensor, ids: Tensor, out: tuple[Tensor, ...], dout: tuple[Tensor, ...]
    ) -> tuple[Tensor, Tensor]:
        """Gradients of embedding and ids (none)."""
        return add_rows(dout[1], ids, dout[0]), ops.zeros_like(ids)


def ordered_sum(x: Tensor) -> Tensor:
    """Sum all elements of `x` to a scalar, always in the same order, so that runs agree to the last bit.

    MindSpore's ReduceSum cuts a long vector into as many parts as it found fastest by trying: two runs
    of one program add in different orders (seen with 2.7.0 on a CPU from about 200,000 elements). A product
    with ones is cut between rows only, and is ten times as fast as a sum over short rows.
    """
    x = x.reshape((-1,))
    while x.shape[0] > ROW:
        full = x.shape[0] // ROW * ROW
        remaining = x.shape[0] - full
        rows = plain_product(part(x, 0, 0, full).reshape((-1, ROW)), ops.ones((ROW, 1), ms.float32)).reshape(
            (-1,)
        )
        x = rows if not remaining else ops.concat((rows, part(x, 0, full, remaining)))
    return x.sum()


def row_sums(x: Tensor) -> Tensor:
    """Sum each row of `x` [B, T] to [B, 1]."""
    return plain_product(x, ops.ones((x.shape[1], 1), ms.float32))


def square_sum(x: Tensor, pieces: int = 1) -> Tensor:
    """Sum the squares of all elements of `x` [..., W] to a scalar, always in the same order.

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
