"""The next token: greedy, or drawn by inverting the cumulative distribution at one given number.

One uniform number per token, made on the host from (seed, step, completion, position), decides every
draw: the same completions come out however many workers share them, and the graph needs no random
state.
"""

from __future__ import annotations

from collections.abc import Sequence

import mindspore as ms
import numpy as np
from mindspore import Tensor, nn, ops
from numpy.typing import NDArray

from stages.grpo.config import RolloutConfig

IMPOSSIBLE = -1e9  # logit of a token that must not be drawn
LARGEST = np.float32(1 - 2**-22)  # times a float32 sum still below that sum, however it is rounded


def uniforms(seed: Sequence[int], completions: int, tokens: int) -> NDArray[np.float32]:
    """Return random numbers in [0, 1), [completions of all workers, tokens].

    `seed` distinguishes this draw from others, for example (seed, step); zeros at its end do not.
    """
    random = np.random.Generator(np.random.Philox(np.random.SeedSequence(list(seed))))
    return np.minimum(random.random((completions, tokens), np.float32), LARGEST)


class NextToken(nn.Cell):
    """Cell that draws one token per row."""

    def __init__(self, config: RolloutConfig, eos: Sequence[int], vocab_size: int) -> None:
        super().__init__()
        self.config = config
        ends = np.zeros((1, vocab_size), np.float32)
        ends[0, list(eos)] = IMPOSSIBLE
        self.ends = Tensor(ends)
        self.block = block_size(vocab_size)

    def construct(self, logits: Tensor, uniform: Tensor, greedy: bool, t: Tensor) -> Tensor:
        """Draw ids [B], int32.

        Args:
            logits: [B, V].
            uniform: [B], in [0, 1).
            greedy: take the likeliest token, without temperature and filters; constant in a graph, because
                sampling takes as long as two layers of a small model.
            t: scalar, tokens that each completion already has.
        """
        if self.config.min_tokens > 0:
            early = (t < self.config.min_tokens).astype(ms.float32) * self.ends
            logits = logits + ops.matmul(ops.full((logits.shape[0], 1), 1.0, dtype=ms.float32), early)
        if greedy:
            return ops.argmax(logits, -1).astype(ms.int32)
        if self.config.temperature != 1:
            logits = logits / self.config.temperature
        return self.drawn(self.filtered(logits), uniform)

    def drawn(self, weights: Tensor, uniform: Tensor) -> Tensor:
        """Return ids [B] at which the running sum of weights [B, V] exceeds uniform [B] times their total.

        First the block of the vocabulary, then the token in it: one pass over all weights instead of three.
        """
        B, V, W = weights.shape[0], weights.shape[1], self.block
        blocks = weights.reshape((B * V // W, W))
        sums = ops.matmul(blocks, ops.full((W, 1), 1.0, dtype=ms.float32))  # ten times as fast as a sum
        ends = ops.cumsum(sums.reshape((B, V // W)), -1)
        target = uniform.expand_dims(1) * ends[:, -1:]
        block = count(ends <= target)
        inside = ops.cumsum(ops.gather(blocks, ops.arange(B) * (V // W) + block, 0), -1)
        starts = ops.concat((ops.zeros_like(target), ends), 1)
        remaining = target - ops.gather_elements(starts, 1, block.expand_dims(1))
        # Rounding must not lead out of the block, nor to a token of weight 0 at either end of it.
        remaining = ops.minimum(
            ops.maximum(remaining, ops.zeros_like(remaining)), inside[:, -1:] * float(LARGEST)
        )
        return block * W + count(inside <= remaining)

    def filtered(self, logits: Tensor) -> Tensor:
        """Return probabilities [B, V], 0 for tokens dropped by top_k, top_p or min_p, as in transformers.

        Tokens as likely as the last one that top_p keeps stay, too.
        """
        config = self.config
        if config.top_k is not None and config.top_k < logits.shape[-1]:
            kth = ops.topk(logits, config.top_k)[0][:, -1:]
            logits = ops.select(logits < kth, ops.full_like(logits, IMPOSSIBLE), logits)
        weights = ops.softmax(logits, -1)
        if config.top_p is not None:
            ordered = ops.sort(weights, -1, True)[0]
            before = ops.cumsum(ordered, -1) - ordered
            # The first token always stays; the last one kept is the one that reaches p.
            selected = before < config.top_p
            least = ops.amin(ops.select(selected, ordered, ops.ones_like(ordered)), -1, True)
            weights = weights * (weights >= least).astype(ms.float32)
        if config.min_p is not None:
            likeliest = ops.amax(weights, -1, True)
            weights = weights * (weights >= config.min_p * likeliest).astype(ms.float32)
        return weights


def block_size(vocab_size: int) -> int:
    """Return the divisor of the vocabulary size nearest to its root, for a search in two short steps."""
    root = vocab_size**0.5
    return min((d for d in range(1, vocab_size + 1) if vocab_size % d == 0), key=lambda d: abs(d - root))


def count(true: Tensor) -> Tensor:
    """Count the true values of each row [B, N] as int32 [B]; summed as float32, which is twice as fast."""
    return true.astype(ms.float32).sum(-1).astype(ms.int32)


def penalised(logits: Tensor, seen: Tensor, penalty: float) -> Tensor:
    """Return logits [B, V] in which the tokens that a row has seen (1.0 in `seen` [B, V]) are less likely.

    Source: Keskar et al. 2019, CTRL, arXiv:1909.05858, section 4.1, for logits of either sign as in
    transformers' RepetitionPenaltyLogitsProcessor.
    """
    less = ops.select(logits > 0, logits / penalty, logits * penalty)
    return ops.select(seen > 0, less, logits)
