"""The next token: greedy, or drawn by inverting the cumulative distribution at one given number.

One uniform number per token, made on the host from (seed, step, completion, position), decides every
draw: the same completions come out however many workers share them, and the graph needs no random
state.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import Tensor, nn, ops
from numpy.typing import NDArray

from stages.grpo.config import RolloutConfig

IMPOSSIBLE = -1e9  # logit of a token that must not be drawn
LARGEST = np.float32(1 - 2**-22)  # times a float32 sum still below that sum, however it is rounded


def uniforms(seed: Sequence[int], completions: int, tokens: int) -> NDArray[np.float32]:
    """Numbers in [0, 1) for each token of each completion, [completions, tokens].

    Args:
        seed: what makes this draw unlike all others, for example (seed, step).
        completions: of all workers together; each takes its own rows.
        tokens: longest completion.
    """
    random = np.random.Generator(np.random.Philox(np.random.SeedSequence(list(seed))))
    return np.minimum(random.random((completions, tokens), np.float32), LARGEST)


class NextToken(nn.Cell):
    """Draws one token per row."""

    def __init__(self, config: RolloutConfig, eos: Sequence[int], vocab_size: int) -> None:
        """Take over the rules.

        Args:
            config: temperature, filters and shortest completion.
            eos: ids that end a completion.
            vocab_size: of the logits.
        """
        super().__init__()
        self.config = config
        ends = np.zeros((1, vocab_size), np.float32)
        ends[0, list(eos)] = IMPOSSIBLE
        self.ends = Tensor(ends)

    def construct(self, logits: Tensor, uniform: Tensor, greedy: Tensor, t: Tensor) -> Tensor:
        """Ids [B], int32.

        Args:
            logits: [B, V].
            uniform: [B], in [0, 1).
            greedy: scalar; True takes the likeliest token and ignores temperature and filters.
            t: scalar, tokens that each completion already has.
        """
        if self.config.min_tokens > 0:
            logits = logits + self.ends * (t < self.config.min_tokens).astype(ms.float32)
        likeliest = ops.argmax(logits, -1).astype(ms.int32)
        weights = self.filtered(logits / self.config.temperature)
        cumulative = ops.cumsum(weights, -1)
        target = uniform.expand_dims(1) * cumulative[:, -1:]
        drawn = (cumulative <= target).astype(ms.int32).sum(-1).astype(ms.int32)
        return ops.select(ops.broadcast_to(greedy, drawn.shape), likeliest, drawn)

    def filtered(self, logits: Tensor) -> Tensor:
        """Unnormalised probabilities [B, V]; 0 for what top_k, top_p, min_p drop, in transformers' order."""
        config = self.config
        if config.top_k is not None and config.top_k < logits.shape[-1]:
            kth = ops.topk(logits, config.top_k)[0][:, -1:]
            logits = ops.select(logits < kth, ops.full_like(logits, IMPOSSIBLE), logits)
        weights = ops.exp(logits - ops.amax(logits, -1, True))
        if config.top_p is not None:
            ordered = ops.sort(weights, -1, True)[0]
            before = ops.cumsum(ordered, -1) - ordered
            # The first token always stays; the last one kept is the one that reaches p.
            kept = before < config.top_p * weights.sum(-1, keepdims=True)
            least = ops.amin(ops.select(kept, ordered, ops.ones_like(ordered)), -1, True)
            weights = weights * (weights >= least).astype(ms.float32)
        if config.min_p is not None:
            weights = weights * (weights >= config.min_p).astype(ms.float32)  # the likeliest has weight 1
        return weights


def penalised(logits: Tensor, seen: Tensor, penalty: float) -> Tensor:
    """Logits [B, V] with those of tokens that a row has seen made less likely.

    Args:
        logits: [B, V].
        seen: 1.0 where the row's prompt or completion holds the token, else 0 [B, V].
        penalty: above 1: less likely.

    Source: Keskar et al. 2019, CTRL, arXiv:1909.05858, section 4.1, for logits of either sign as in
    transformers' RepetitionPenaltyLogitsProcessor.
    """
    less = ops.select(logits > 0, logits / penalty, logits * penalty)
    return ops.select(seen > 0, less, logits)


def lengths(ids: NDArray[Any], eos: Sequence[int]) -> tuple[NDArray[np.int32], NDArray[np.bool_]]:
    """Tokens of each completion up to and with its end token, and whether it was cut before one.

    Args:
        ids: [B, T].
        eos: ids that end a completion.

    Returns:
        lengths [B] (T where cut) and cut [B].
    """
    ended = np.isin(ids, list(eos))
    cut = ~ended.any(1)
    return np.where(cut, ids.shape[1], ended.argmax(1) + 1).astype(np.int32), cut
