"""Completions that are being written: their caches, and the graph that adds one token to each.

Caches: keys and values [B*K, L, D] with L = S + T slots for each completion and head, the prompt's first; T
may be fewer than the longest completion needs. In this order of axes a step needs no transposition. Each step
adds to slots that hold 0: IndexAdd is the one operator of MindSpore 2.7.0 that writes along another axis than
the first without copying the cache. Other shapes as in model.py; B completions.
"""

from __future__ import annotations

from typing import Any

import mindspore as ms
import numpy as np
from mindspore import Parameter, ParameterTuple, Tensor, nn, ops
from numpy.typing import NDArray

from stages.grpo.attention import HIDDEN, scores, weigh
from stages.grpo.config import RolloutConfig
from stages.grpo.model import CausalLM
from stages.grpo.sampling import NextToken, penalised
from stages.tokenizer import SpecialIds

RELEASED = (1, 1, 1)
"""Shape of a cache that takes no memory."""


class Decoding(nn.Cell):
    """B completions under one model's weights, which may change between calls.

    Its caches take memory from `allocate` or `take_over` to `release`. This needs MindSpore's graph mode:
    without it a graph that has run goes on with the memory that a parameter had before set_data (2.7.0).
    """

    def __init__(
        self, model: CausalLM, config: RolloutConfig, completions: int, prompt_slots: int, slots: int,
        special: SpecialIds,
    ) -> None:  # fmt: skip
        """Describe the caches of B `completions` with S `prompt_slots` and T `slots` for their tokens.

        The padding id comes after an end id.
        """
        super().__init__()
        self.model, self.pad = model, special.pad
        self.B, self.S, self.T = completions, prompt_slots, slots
        layer = model.layers[0]
        self.K, self.R, self.D = layer.K, layer.Q // layer.K, layer.D
        self.L = self.S + self.T
        self.keys, self.values = (
            ParameterTuple(
                Parameter(Tensor(np.zeros(RELEASED, np.float32)), name=f"{name}_{i}", requires_grad=False)
                for i in range(len(model.layers))
            )
            for name in ("keys", "values")
        )
        self.write = ops.IndexAdd(axis=1)
        self.next_token = NextToken(config, special.eos, model.vocab_size)
        self.is_end = Tensor(np.isin(np.arange(model.vocab_size), special.eos))
        self.penalty = config.repetition_penalty
        seen = np.zeros((self.B, model.vocab_size) if self.penalty != 1 else (1, 1), np.float32)
        self.seen = Parameter(Tensor(seen), name="seen", requires_grad=False)
        """1.0 for each token that a completion or its prompt contains, if there is a penalty on them."""
        self.every_row = Tensor(np.arange(self.B, dtype=np.int32).reshape(-1, 1))

    def allocate(self) -> None:
        """Give the caches their memory; they hold 0."""
        for cache in (*self.keys, *self.values):
            _hold(cache, np.zeros((self.B * self.K, self.L, self.D), np.float32))

    def release(self) -> None:
        """Give back the memory of the caches."""
        for cache in (*self.keys, *self.values):
            _hold(cache, np.zeros(RELEASED, np.float32))

    def take_over(self, other: Decoding, rows: NDArray[Any]) -> None:
        """Move the caches of B completions of `other`, by their indices there; it is released.

        `other` has at least as many completions, and at most as many slots.
        """
        heads = (rows[:, None] * self.K + np.arange(self.K)).reshape(-1)
        pairs = zip((*self.keys, *self.values), (*other.keys, *other.values), strict=True)
        for cache, source in pairs:  # one at a time, so that there is hardly more memory than for one of both
            moved = np.zeros((len(heads), self.L, self.D), np.float32)
            moved[:, : other.L] = source.asnumpy()[heads]
            _hold(source, np.zeros(RELEASED, np.float32))
            _hold(cache, moved)
        if self.penalty != 1:
            self.seen.set_data(Tensor(other.seen.asnumpy()[rows]))

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


def _hold(cache: Parameter, array: NDArray[Any]) -> None:
    """Let a cache have an array, of any shape, instead of its present one."""
    cache.set_data(Tensor(array), slice_shape=True)
