"""Completions from the policy: one pass over the prompts, then one token per step with cached keys.

Caches: keys and values [B*K, L, D] with L = S + T slots for each completion and head, the prompt's first.
A group's prompt is computed once and its keys are copied to each completion. In this order of axes a step
needs no transposition. Each step adds to slots that hold 0: IndexAdd is the one operator of MindSpore 2.7.0
that writes along another axis than the first without copying the cache.
Other shapes as in model.py; B = P*G completions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import Parameter, Tensor, nn, ops
from numpy.typing import NDArray

from stages.grpo.attention import HIDDEN, attend_within, causal_mask, prompt_mask, scores, weigh
from stages.grpo.config import RolloutConfig
from stages.grpo.model import CausalLM
from stages.grpo.operators import zeros
from stages.grpo.sampling import NextToken, penalised
from stages.tokenizer import SpecialIds

CHECK_EVERY = 4  # steps between checks whether all completions have ended; a check waits for the graph


@dataclass(frozen=True)
class Completions:
    """B sampled completions; those of one prompt are neighbours."""

    ids: NDArray[np.int32]
    """[B, T], the padding id after the end."""
    lengths: NDArray[np.int32]
    """[B] tokens, the end token included."""
    cut: NDArray[np.bool_]
    """[B] completions that reached T without an end token."""

    @classmethod
    def from_ids(cls, ids: NDArray[np.int32], eos: Sequence[int]) -> Completions:
        """Find the end of each completion of `ids` [B, T]: the first of the `eos` ids."""
        ended = np.isin(ids, list(eos))
        cut = ~ended.any(1)
        return cls(ids, np.where(cut, ids.shape[1], ended.argmax(1) + 1).astype(np.int32), cut)


class Decoder(nn.Cell):
    """Decoder of P prompts x G completions with one model's weights."""

    def __init__(
        self, model: CausalLM, config: RolloutConfig, prompts: int, group_size: int, prompt_slots: int,
        special: SpecialIds,
    ) -> None:  # fmt: skip
        """Allocate the caches for P `prompts` of S `prompt_slots`, and `group_size` G.

        The model's weights may change between calls. The padding id comes after an end id.
        """
        super().__init__()
        self.model, self.config, self.eos, self.pad = model, config, special.eos, special.pad
        self.P, self.G, self.S, self.T = prompts, group_size, prompt_slots, config.max_tokens
        self.B = prompts * group_size
        layer, count = model.layers[0], len(model.layers)
        self.K, self.R, self.D = layer.K, layer.Q // layer.K, layer.D
        self.L = self.S + self.T
        shapes = [(self.B * self.K, self.L, self.D)] * count
        self.keys, self.values = zeros("keys", shapes), zeros("values", shapes)
        self.write = ops.IndexAdd(axis=1)
        self.next_token = NextToken(config, self.eos, model.vocab_size)
        self.is_end = Tensor(np.isin(np.arange(model.vocab_size), self.eos))
        self.penalty = config.repetition_penalty
        seen = (self.B, model.vocab_size) if self.penalty != 1 else (1, 1)
        self.seen = Parameter(Tensor(np.zeros(seen, np.float32)), name="seen", requires_grad=False)
        self.every_row = Tensor(np.arange(self.B, dtype=np.int32).reshape(-1, 1))

    def generate(
        self, prompt: NDArray[Any], length: NDArray[Any], uniform: NDArray[np.float32] | None
    ) -> Completions:
        """Complete P prompts.

        Args:
            prompt: ids [P, S], padded on the right.
            length: true lengths [P].
            uniform: numbers that decide the draws [P*G, T]; None: greedy.
        """
        greedy = uniform is None
        columns = np.zeros((self.T, self.B), np.float32) if uniform is None else uniform.T
        draws = [Tensor(np.ascontiguousarray(column)) for column in columns]
        length = length.astype(np.int32)
        if self.penalty != 1:
            self.seen.set_data(Tensor(self._tokens_of_prompts(prompt, length)))
        token, done = self.prefill(Tensor(prompt.astype(np.int32)), Tensor(length), draws[0], greedy)
        lengths_B = Tensor(length.repeat(self.G))
        tokens = [token]
        for t in range(1, self.T):
            if t % CHECK_EVERY == 0 and done.asnumpy().all():
                break
            token, done = self.step(token, done, lengths_B, Tensor([t], ms.int32), draws[t], greedy)
            tokens.append(token)
        ids = np.full((self.B, self.T), self.pad, np.int32)
        ids[:, : len(tokens)] = np.stack([token.asnumpy() for token in tokens], 1)
        return Completions.from_ids(ids, self.eos)

    def _tokens_of_prompts(self, prompt: NDArray[Any], length: NDArray[Any]) -> NDArray[np.float32]:
        """Return 1.0 where a row's prompt contains a token [B, V]."""
        contained = np.zeros((self.P, self.seen.shape[1]), np.float32)
        for row, ids, count in zip(contained, prompt, length, strict=True):
            row[ids[:count]] = 1
        return contained.repeat(self.G, 0)

    def draw(self, logits: Tensor, uniform: Tensor, greedy: bool, t: Tensor) -> Tensor:
        """Draw token t of each completion [B] and mark it as seen."""
        if self.penalty == 1:
            return self.next_token(logits, uniform, greedy, t)
        token = self.next_token(penalised(logits, self.seen, self.penalty), uniform, greedy, t)
        index = ops.concat((self.every_row, token.reshape((-1, 1))), 1)
        ops.scatter_nd_update(self.seen, index, ops.ones_like(uniform))
        return token

    @ms.jit
    def prefill(self, prompt: Tensor, length: Tensor, uniform: Tensor, greedy: bool) -> tuple[Tensor, Tensor]:
        """Fill the caches with the prompts and draw the first tokens [B]; done [B]."""
        P, S, G = self.P, self.S, self.G
        positions = ops.broadcast_to(ops.arange(S).reshape((1, S)), (P, S)).reshape((-1,))
        cos, sin = self.model.rotary(positions)
        mask = prompt_mask(length, S) + causal_mask(S)
        mask = ops.broadcast_to(mask, (P, self.K * self.R, S, S))
        x, head = self.model.embed_and_head(prompt.reshape((-1,)))
        for i, layer in enumerate(self.model.layers):
            q, k, v = layer.project(x, cos, sin)
            attended, keys, values = attend_within(q, k, v, mask)
            ops.assign(self.keys[i], self.repeated(keys))
            ops.assign(self.values[i], self.repeated(values))
            x = layer.finish(x, attended)
        last = ops.gather(x, ops.arange(P) * S + length - 1, 0)
        logits = self.model.all_logits(last, head)
        V = logits.shape[-1]
        logits = ops.broadcast_to(logits.reshape((P, 1, V)), (P, G, V)).reshape((P * G, V))
        token = self.draw(logits, uniform, greedy, Tensor(0, ms.int32))
        return token, self.ends(token)

    def repeated(self, x: Tensor) -> Tensor:
        """Repeat the prompts' keys or values [P*K, S, D] for each completion, and append T empty slots."""
        P, G, S, T, K, D = self.P, self.G, self.S, self.T, self.K, self.D
        x = ops.broadcast_to(x.reshape((P, 1, K * S * D)), (P, G, K * S * D)).reshape((P * G * K, S, D))
        return ops.concat((x, ops.zeros((P * G * K, T, D), x.dtype)), 1)

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
