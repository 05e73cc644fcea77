"""Log-sums and chosen logits, computed some rows at a time, so that the logits never exist as a whole.

Shapes: N tokens, H hidden, V this card's vocabulary, n rows of a piece.
Source: Hsu et al. 2024, Liger Kernel, arXiv:2410.10989, section 3.2.
"""

import numpy as np
from mindspore import Tensor, nn, ops

from stages.grpo.batch import LEAST
from stages.grpo.operators import add_rows, plain_product, product, transposed_product

SMALLEST = 1e-37  # of positive float32 numbers, about
PIECE = 2**19  # logits that are computed at a time: 2 MiB, about one core's cache


class TokenLogits(nn.Cell):
    """Log-sums of exp(logits) and logits of given ids; the softmax stays for the backward pass."""

    def __init__(self, H: int, V: int) -> None:
        super().__init__()
        self.row, self.column = Tensor(np.ones((1, H), np.float32)), Tensor(np.ones((V, 1), np.float32))

    def construct(
        self, x: Tensor, head: Tensor, ids: Tensor, max_rows: int
    ) -> tuple[Tensor, Tensor, Tensor, tuple[Tensor, ...]]:
        """Return log-sums, chosen logits and means of the logits x @ head.T.

        Args:
            x: [N, H].
            head: [V, H].
            ids: [N], int32.
            max_rows: N is at most this, and at least this divided by batch.LEAST: no part is empty.

        Returns:
            log-sums [N, 1]; logits of ids [N, 1]; the logits' mean under their softmax [N, 1], without
            gradient; and, for the backward pass, that softmax in pieces [n, V].
        """
        sums, chosen, means, softmaxes = [], [], [], []
        N, H, V = x.shape[0], head.shape[1], head.shape[0]
        # Parts of about PIECE logits and at least H rows, at most 16: each adds a gradient as large as head.
        count = -(-max_rows // max(PIECE // V, H, LEAST, -(-max_rows // 16)))
        for i in range(count):
            start, end = N * i // count, N * (i + 1) // count
            logits = product(x if count == 1 else x[start:end], head)
            logprobs = ops.log_softmax(logits, -1)
            softmax = ops.exp(logprobs)
            sums.append(logits[:, :1] - logprobs[:, :1])
            chosen.append(ops.gather_elements(logits, 1, ids[start:end].reshape((-1, 1))))
            means.append(plain_product(softmax * logits, self.column))
            softmaxes.append(softmax)
        return ops.concat(sums), ops.concat(chosen), ops.concat(means), tuple(softmaxes)

    def bprop(
        self, x: Tensor, head: Tensor, ids: Tensor, max_rows: int, out: tuple[Tensor, ...],
        dout: tuple[Tensor, ...],
    ) -> tuple[Tensor, Tensor, Tensor, int]:  # fmt: skip
        """Backpropagate from the log-sums and the chosen logits to x and head; ids get no gradient."""
        weight, of_chosen = plain_product(dout[0], self.row), plain_product(dout[1], self.row)
        weighted, N, count = x * weight, x.shape[0], len(out[3])
        to_x, to_head = [], None
        for i, softmax in enumerate(out[3]):
            to_x.append(plain_product(softmax, head))
            # A slice that leaves nothing out takes 40 ns per element (mindspore 2.7.0).
            some = weighted if count == 1 else weighted[N * i // count : N * (i + 1) // count]
            part = transposed_product(softmax, some)
            to_head = part if i == 0 else to_head + part
        to_x = ops.concat(to_x) * weight + ops.gather(head, ids, 0) * of_chosen
        return to_x, add_rows(to_head, ids, x * of_chosen), ops.zeros_like(ids), max_rows


class TokenLogitsAndMeans(TokenLogits):
    """The same with a gradient of the means, for entropies; it takes another pass over the softmax."""

    def bprop(
        self, x: Tensor, head: Tensor, ids: Tensor, max_rows: int, out: tuple[Tensor, ...],
        dout: tuple[Tensor, ...],
    ) -> tuple[Tensor, Tensor, Tensor, int]:  # fmt: skip
        """Backpropagate from the log-sums, the chosen logits and the means to x and head.

        With p the softmax, s the log-sum and m the mean, ds/dl = p and dm/dl = p (1 + l - m); l = log p + s.
        """
        of_sums, of_means = dout[0] + dout[2] * (1.0 + out[0] - out[2]), dout[2]
        every, of_chosen = self.column.reshape((1, -1)), plain_product(dout[1], self.row)
        to_x, to_head, N, count = [], None, x.shape[0], len(out[3])
        for i, softmax in enumerate(out[3]):
            # Not as an if statement, after which the compiler of 2.7.0 loses an argument.
            rows = x if count == 1 else x[N * i // count : N * (i + 1) // count]
            sums = of_sums if count == 1 else of_sums[N * i // count : N * (i + 1) // count]
            means = of_means if count == 1 else of_means[N * i // count : N * (i + 1) // count]
            # A softmax of 0 has no logarithm, but p log p is 0.
            logprobs = ops.log(ops.maximum(softmax, SMALLEST))
            of_logits = softmax * (plain_product(sums, every) + plain_product(means, every) * logprobs)
            to_x.append(plain_product(of_logits, head))
            part = transposed_product(of_logits, rows)
            to_head = part if i == 0 else to_head + part
        to_x = ops.concat(to_x) + ops.gather(head, ids, 0) * of_chosen
        return to_x, add_rows(to_head, ids, x * of_chosen), ops.zeros_like(ids), max_rows
