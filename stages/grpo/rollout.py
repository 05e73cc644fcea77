"""Completions from the policy: one pass over the prompts, then one token per step with cached keys.

Caches: the prompts' keys and values [P*K, S, D], once for all G completions of a prompt, and the
completions' own [P*K*G, T, D]. In this order of axes a step writes one row per completion and head
and needs no transposition, which is what decides the speed of decoding on a CPU.
Other shapes as in model.py; B = P*G completions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import Parameter, ParameterTuple, Tensor, nn, ops
from numpy.typing import NDArray

from stages.grpo.attention import HIDDEN, attend_within, causal_mask, prompt_mask, scores, weigh
from stages.grpo.config import RolloutConfig
from stages.grpo.model import Qwen2
from stages.grpo.sampling import NextToken, lengths, penalised

CHECK_EVERY = 4  # steps between looks at whether all completions have ended; a look waits for the graph


@dataclass(frozen=True)
class Completions:
    """B sampled completions; those of one prompt are neighbours."""

    ids: NDArray[np.int32]
    """[B, T], the padding id after the end."""
    lengths: NDArray[np.int32]
    """[B] tokens, the end token included."""
    cut: NDArray[np.bool_]
    """[B] completions that reached T without an end token."""


def _cache(name: str, layers: int, *shape: int) -> ParameterTuple:
    zeros = np.zeros(shape, np.float32)
    return ParameterTuple(
        [Parameter(Tensor(zeros), name=f"{name}_{i}", requires_grad=False) for i in range(layers)]
    )


class Decoder(nn.Cell):
    """Decodes P prompts x G completions with one model's weights."""

    def __init__(
        self, model: Qwen2, config: RolloutConfig, prompts: int, group_size: int, prompt_slots: int,
        eos: Sequence[int], pad: int,
    ) -> None:  # fmt: skip
        """Allocate the caches.

        Args:
            model: its weights may change between calls.
            config: sampling rules and longest completion.
            prompts: P.
            group_size: G.
            prompt_slots: S.
            eos: ids that end a completion.
            pad: id after the end.
        """
        super().__init__()
        self.model, self.eos, self.pad = model, tuple(eos), pad
        self.P, self.G, self.S, self.T = prompts, group_size, prompt_slots, config.max_tokens
        layer, count = model.layers[0], len(model.layers)
        self.K, self.R, self.D = layer.K, layer.Q // layer.K, layer.D
        self.prompt_keys = _cache("prompt_keys", count, prompts * self.K, self.S, self.D)
        self.prompt_values = _cache("prompt_values", count, prompts * self.K, self.S, self.D)
        rows = prompts * self.K * group_size
        self.keys = _cache("keys", count, rows, self.T, self.D)
        self.values = _cache("values", count, rows, self.T, self.D)
        self.rows = Tensor(np.arange(rows, dtype=np.int32).reshape(-1, 1))
        self.next_token = NextToken(config, eos, model.vocab_size)
        self.penalty = config.repetition_penalty
        seen = (prompts * group_size, model.vocab_size) if self.penalty != 1 else (1, 1)
        self.seen = Parameter(Tensor(np.zeros(seen, np.float32)), name="seen", requires_grad=False)
        self.every_row = Tensor(np.arange(prompts * group_size, dtype=np.int32).reshape(-1, 1))

    def generate(
        self,
        prompt: NDArray[Any],
        length: NDArray[Any],
        uniform: NDArray[np.float32] | None,
        all_ended: Callable[[bool], bool] = bool,
    ) -> Completions:
        """Complete P prompts.

        Args:
            prompt: ids [P, S], padded on the right.
            length: true lengths [P].
            uniform: numbers that decide the draws [P*G, T]; None: greedy.
            all_ended: given whether these completions have ended, says whether to stop.
        """
        greedy = uniform is None
        if uniform is None:
            uniform = np.zeros((self.P * self.G, self.T), np.float32)
        draws = [Tensor(np.ascontiguousarray(column)) for column in uniform.T]
        lengths_tensor = Tensor(length.astype(np.int32))
        if self.penalty != 1:
            self.seen.set_data(Tensor(self._held(prompt, length)))
        token, done = self.prefill(Tensor(prompt.astype(np.int32)), lengths_tensor, draws[0], greedy)
        tokens = [token]
        for t in range(1, self.T):
            if t % CHECK_EVERY == 0 and all_ended(bool(done.asnumpy().all())):
                break
            token, done = self.step(token, done, lengths_tensor, Tensor(t, ms.int32), draws[t], greedy)
            tokens.append(token)
        ids = np.full((self.P * self.G, self.T), self.pad, np.int32)
        ids[:, : len(tokens)] = np.stack([token.asnumpy() for token in tokens], 1)
        return Completions(ids, *lengths(ids, self.eos))

    def _held(self, prompt: NDArray[Any], length: NDArray[Any]) -> NDArray[np.float32]:
        """1.0 where a row's prompt holds a token [B, V]."""
        held = np.zeros((self.P, self.seen.shape[1]), np.float32)
        for row, ids, count in zip(held, prompt, length, strict=True):
            row[ids[:count]] = 1
        return held.repeat(self.G, 0)

    def draw(self, logits: Tensor, uniform: Tensor, greedy: bool, t: Tensor) -> Tensor:
        """Token t of each completion [B], which counts as seen from now on."""
        if self.penalty == 1:
            return self.next_token(logits, uniform, greedy, t)
        token = self.next_token(penalised(logits, self.seen, self.penalty), uniform, greedy, t)
        places = ops.concat((self.every_row, token.reshape((-1, 1))), 1)
        ops.scatter_nd_update(self.seen, places, ops.ones_like(uniform))
        return token

    @ms.jit
    def prefill(self, prompt: Tensor, length: Tensor, uniform: Tensor, greedy: bool) -> tuple[Tensor, Tensor]:
        """Fill the prompts' caches and draw the first tokens [B]; done [B]."""
        P, S, G = self.P, self.S, self.G
        positions = ops.broadcast_to(ops.arange(S).reshape((1, S)), (P, S)).reshape((-1,))
        cos, sin = self.model.rotary(positions)
        mask = prompt_mask(length, S) + causal_mask(S)
        x = self.model.embed(prompt.reshape((-1,)))
        for i, layer in enumerate(self.model.layers):
            q, k, v = layer.project(x, cos, sin)
            attended, keys, values = attend_within(q, k, v, mask)
            ops.assign(self.prompt_keys[i], keys)
            ops.assign(self.prompt_values[i], values)
            x = layer.finish(x, attended)
        last = ops.gather(x, ops.arange(P) * S + length - 1, 0)
        logits = self.model.all_logits(last)
        V = logits.shape[-1]
        logits = ops.broadcast_to(logits.reshape((P, 1, V)), (P, G, V)).reshape((P * G, V))
        token = self.draw(logits, uniform, greedy, Tensor(0, ms.int32))
        return token, self.ends(token)

    @ms.jit
    def step(
        self, token: Tensor, done: Tensor, length: Tensor, t: Tensor, uniform: Tensor, greedy: bool
    ) -> tuple[Tensor, Tensor]:
        """Draw token t of each completion.

        Args:
            token: the previous tokens [B].
            done: completions that have ended [B].
            length: of the prompts [P].
            t: scalar, 1 or more.
            uniform: [B].
            greedy: scalar.

        Returns:
            tokens [B] (padding where done) and done [B].
        """
        P, G, S, T = self.P, self.G, self.S, self.T
        positions = ops.broadcast_to(length.reshape((P, 1)), (P, G)).reshape((-1,)) + (t - 1)
        cos, sin = self.model.rotary(positions)
        unwritten = (ops.arange(T) >= t).astype(ms.float32).reshape((1, 1, 1, T)) * HIDDEN
        mask = ops.concat((prompt_mask(length, S), ops.broadcast_to(unwritten, (P, 1, 1, T))), -1)
        indices = ops.concat((self.rows, ops.full_like(self.rows, 0) + (t - 1)), 1)
        x = self.model.embed(token)
        for i, layer in enumerate(self.model.layers):
            q, k, v = layer.project(x, cos, sin)
            x = layer.finish(x, self.attend(i, q, k, v, indices, mask))
        drawn = self.draw(self.model.all_logits(x), uniform, greedy, t)
        drawn = ops.select(done, ops.full_like(drawn, self.pad), drawn)
        return drawn, ops.logical_or(done, self.ends(drawn))

    def attend(self, i: int, q: Tensor, k: Tensor, v: Tensor, indices: Tensor, mask: Tensor) -> Tensor:
        """Write k and v [B, K, D] at `indices` [P*K*G, 2] of layer i's caches; q [B, Q, D] to [B, Q*D]."""
        P, G, S, T, K, R, D = self.P, self.G, self.S, self.T, self.K, self.R, self.D
        k = k.reshape((P, G, K, D)).transpose((0, 2, 1, 3)).reshape((-1, D))
        v = v.reshape((P, G, K, D)).transpose((0, 2, 1, 3)).reshape((-1, D))
        q = q.reshape((P, G, K, R, D)).transpose((0, 2, 1, 3, 4))
        keys = ops.scatter_nd_update(self.keys[i], indices, k)
        values = ops.scatter_nd_update(self.values[i], indices, v)
        to_prompt = scores(q.reshape((P * K, G * R, D)), self.prompt_keys[i])
        to_own = scores(q.reshape((P * K * G, R, D)), keys)
        joined = ops.concat((to_prompt.reshape((P, K, G * R, S)), to_own.reshape((P, K, G * R, T))), -1)
        shares = ops.softmax(joined + mask, -1)
        attended = weigh(shares[:, :, :, :S].reshape((P * K, G * R, S)), self.prompt_values[i])
        own = weigh(shares[:, :, :, S:].reshape((P * K * G, R, T)), values)
        attended = attended.reshape((P, K, G, R * D)) + own.reshape((P, K, G, R * D))
        return attended.transpose((0, 2, 1, 3)).reshape((P * G, K * R * D))

    def ends(self, token: Tensor) -> Tensor:
        """Which of token [B] end a completion."""
        result = token == self.eos[0]
        for other in self.eos[1:]:
            result = ops.logical_or(result, token == other)
        return result
