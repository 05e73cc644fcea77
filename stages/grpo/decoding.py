"""Completions that are being written: their caches, and the graph that adds one token to each.

Caches: keys and values [B*K, L, D] with L = S + T slots for each completion and head, the prompt's first;
T is the number of tokens that the caches have room for.
In this order of axes a step needs no transposition. Each step adds to slots that hold 0: IndexAdd is the one
operator of MindSpore 2.7.0 that writes along another axis than the first without copying the cache.
Other shapes as in model.py; B completions.
"""

from __future__ import annotations

from typing import Any

import mindspore as ms
import numpy as np
from mindspore import Parameter, Tensor, nn, ops
from numpy.typing import NDArray

from stages.grpo.attention import HIDDEN, scores, weigh
from stages.grpo.config import RolloutConfig
from stages.grpo.model import CausalLM
from stages.grpo.operators import overwrite, zeros
from stages.grpo.sampling import NextToken, penalised
from stages.tokenizer import SpecialIds


class Decoding(nn.Cell):
    """B completions under one model's weights, which may change between calls."""

    def __init__(
        self, model: CausalLM, config: RolloutConfig, completions: int, prompt_slots: int, slots: int,
        special: SpecialIds,
    ) -> None:  # fmt: skip
        """Allocate the caches for B `completions` with S `prompt_slots` and T `slots`.

        The padding id comes after an end id.
        """
        super().__init__()
        self.model, self.pad = model, special.pad
        self.B, self.S, self.T = completions, prompt_slots, slots
        layer, count = model.layers[0], len(model.layers)
        self.K, self.R, self.D = layer.K, layer.Q // layer.K, layer.D
        self.L = self.S + slots
        shapes = [(self.B * self.K, self.L, self.D)] * count
        self.keys, self.values = zeros("keys", shapes), zeros("values", shapes)
        self.write = ops.IndexAdd(axis=1)
        self.next_token = NextToken(config, special.eos, model.vocab_size)
        self.is_end = Tensor(np.isin(np.arange(model.vocab_size), special.eos))
        self.penalty = config.repetition_penalty
        seen = np.zeros((self.B, model.vocab_size) if self.penalty != 1 else (1, 1), np.float32)
        self.seen = Parameter(Tensor(seen), name="seen", requires_grad=False)
        """1.0 for each token that a completion or its prompt contains, if there is a penalty on them."""
        self.every_row = Tensor(np.arange(self.B, dtype=np.int32).reshape(-1, 1))

    def take_over(self, other: Decoding, rows: NDArray[Any]) -> None:
        """Copy the caches of B completions of `other`, of as many slots or fewer, by their indices there."""
        heads = (rows[:, None] * self.K + np.arange(self.K)).reshape(-1)
        pairs = zip((*self.keys, *self.values), (*other.keys, *other.values), strict=True)
        for cache, source in pairs:  # one at a time, which bounds the memory
            values = np.zeros(cache.shape, np.float32)  # each step adds to slots that hold 0
            values[:, : other.L] = source.asnumpy()[heads]
            overwrite(cache, values)
        if self.penalty != 1:
            overwrite(self.seen, other.seen.asnumpy()[rows])

    def draw(self, logits: Tensor, uniform: Tensor, greedy: bool, t: Tensor) -> Tensor:
        """Draw token t of each completion [B] and mark it as seen."""
        if self.penalty == 1:
            return self.next_token(logits, uniform, greedy, t)
        token = self.next_token(penalised(logits, self.seen, self.penalty), uniform, greedy, t)
        index = ops.concat((self.every_row, token.reshape((-1, 1))), 1)
        ops.scatter_nd_update(self.seen, index, ops.ones_like(uniform))
        return token

    @ms.jit
    def step(
        self, token: Tensor, done: Tensor, length: Tensor, t: Tensor, uniform: Tensor, greedy: bool
    ) -> tuple[Tensor, Tensor]:  # fmt: skip
        """Draw token t of each completion; return tokens [B] (padding where done) and done [B].

        Args:
            token: the previous tokens [B].
            done: completions that have ended [B].
            length: of the prompts, once for each completion [B].
            t: 1 or more [1].
            uniform: numbers that decide the draws [B].
            greedy: constant in the graph.
        """
        B, K, L = self.B, self.K, self.L
        cos, sin = self.model.rotary(length + (t - 1))
        slot = t + (self.S - 1)
        slots = ops.arange(L).reshape((1, L))
        is_padding = ops.logical_and(slots >= length.reshape((B, 1)), slots < self.S)
        mask = ops.logical_or(is_padding, slots > slot).astype(ms.float32) * HIDDEN
        mask = ops.broadcast_to(mask.reshape((B, 1, 1, L)), (B, K, self.R, L)).reshape((B * K, self.R, L))
        x, head = self.model.embed_and_head(token)
        for i, layer in enumerate(self.model.layers):
            q, k, v = layer.project(x, cos, sin)
            x = layer.finish(x, self.attend(i, q, k, v, slot, mask))
        drawn = self.draw(self.model.all_logits(x, head), uniform, greedy, t)
        drawn = ops.select(done, ops.full_like(drawn, self.pad), drawn)
        return drawn, ops.logical_or(done, self.ends(drawn))

    def attend(self, i: int, q: Tensor, k: Tensor, v: Tensor, slot: Tensor, mask: Tensor) -> Tensor:
        """Write k and v [B, K, D] into `slot` [1] of layer i's caches; return attended [B, Q*D]."""
        rows, R, D = self.B * self.K, self.R, self.D
        keys = self.write(self.keys[i], slot, k.reshape((rows, 1, D)))
        values = self.write(self.values[i], slot, v.reshape((rows, 1, D)))
        shares = ops.softmax(scores(q.reshape((rows, R, D)), keys) + mask, -1)
        return weigh(shares, values).reshape((self.B, -1))

    def ends(self, token: Tensor) -> Tensor:
        """Return which of token [B] end a completion."""
        return ops.gather(self.is_end, token, 0)
