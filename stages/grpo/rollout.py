"""Completions from the policy: one pass over the prompts, then one token per step with cached keys.

A group's prompt is computed once and its keys are copied to each completion. The first tokens have caches of
few slots. Completions that have ended leave the batch once the others fit into a graph of fewer rows. Each
draw has its own random number, so no result depends on the number of rows, as far as the kernels give a row
the same bits in batches of 16 rows and more (measured for MindSpore 2.7.0 on an AMD EPYC with AVX-512 only).
The slots of the caches depend on the number of a token alone.
Shapes as in model.py; B = P*G completions, T completion slots.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import Tensor, nn, ops
from numpy.typing import NDArray

from stages.grpo.attention import attend_within, causal_mask, prompt_mask
from stages.grpo.config import RolloutConfig, early_slots, smaller_batches
from stages.grpo.decoding import Decoding
from stages.grpo.model import CausalLM
from stages.grpo.operators import overwrite
from stages.tokenizer import SpecialIds

CHECK_EVERY = 4  # steps between checks which completions have ended; a check waits for the graph
COMPILATION = 2e10
"""Operations that a graph of fewer rows or slots must save for each layer: they take twice as long as its
compilation (0.4 s for a layer, MindSpore 2.7.0 on a CPU)."""
OF_A_SLOT = 24
"""Operations in the time that a slot's key and value take, for each of their elements: reading 8 bytes."""


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
        special: SpecialIds, calls: int = 1,
    ) -> None:  # fmt: skip
        """Allocate the caches for P `prompts` of S `prompt_slots`, and `group_size` G.

        The model's weights may change between calls of `generate`. How many `calls` there will be, roughly,
        decides how soon a graph of fewer rows is worth compiling.
        """
        super().__init__()
        self.model, self.config, self.special, self.calls = model, config, special, calls
        self.P, self.G, self.S, self.T = prompts, group_size, prompt_slots, config.max_tokens
        self.B = prompts * group_size
        layer = model.layers[0]
        self.K, self.R = layer.K, layer.Q // layer.K
        self.width: int = layer.K * layer.D  # of a slot's key
        matrices = layer.qkv, layer.output, layer.gate, layer.up, layer.down
        self.weights: int = sum(math.prod(item.shape) for item in matrices)
        early = early_slots(self.T)
        saved = OF_A_SLOT * self.width * (self.T - early) * early * self.B * calls  # if none ends before
        self.all = self._new(self.B, early if saved >= COMPILATION else self.T)
        self.others: dict[tuple[int, int], Decoding] = {}
        """Decodings by their completions and slots, created when first needed."""

    def operations(self, slots: int) -> int:
        """Return the operations of one layer for one token, with caches for `slots` tokens."""
        return 2 * self.weights + OF_A_SLOT * self.width * (self.S + slots)

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
        if uniform is None:
            uniform = np.zeros((self.B, self.T), np.float32)
        length = length.astype(np.int32)
        if self.config.repetition_penalty != 1:
            overwrite(self.all.seen, self._tokens_of_prompts(prompt, length))
        token, done = self.prefill(
            Tensor(prompt.astype(np.int32)), Tensor(length), Tensor(uniform[:, 0].copy()), greedy
        )
        decoding, rows, lengths_B = self.all, np.arange(self.B), Tensor(length.repeat(self.G))
        drawn = [(rows, token)]
        for t in range(1, self.T):
            if t % CHECK_EVERY == 0 or t > decoding.T:
                ended = done.asnumpy()
                if ended.all():
                    break
                fitting = self.fitting(decoding, int((~ended).sum()), t)
                if fitting is not decoding:
                    # Those that run, in their order; some that have ended fill up the rows.
                    kept = np.sort(np.argsort(ended, kind="stable")[: fitting.B])
                    fitting.take_over(decoding, kept)
                    decoding, rows = fitting, rows[kept]
                    token, done = Tensor(token.asnumpy()[kept]), Tensor(ended[kept])
                    lengths_B = Tensor(length[rows // self.G])
            uniforms_B = Tensor(uniform[rows, t])
            token, done = decoding.step(token, done, lengths_B, Tensor([t], ms.int32), uniforms_B, greedy)
            drawn.append((rows, token))
        ids = np.full((self.B, self.T), self.special.pad, np.int32)
        for t, (rows, token) in enumerate(drawn):
            ids[rows, t] = token.asnumpy()
        return Completions.from_ids(ids, self.special.eos)

    def fitting(self, decoding: Decoding, running: int, t: int) -> Decoding:
        """Return the decoding to go on with: of fewer rows if that is worthwhile, of all slots if needed.

        It depends on nothing that an earlier call found, so that a resumed run computes the same graphs.

        Args:
            decoding: the present one.
            running: completions that have not ended.
            t: number of the next token.
        """
        B, slots = decoding.B, decoding.T if t <= decoding.T else self.T
        sizes = [size for size in smaller_batches(self.B) if running <= size < B]
        if sizes:
            # Completions end on average halfway, in each of the calls.
            saved = (B - sizes[-1]) * (slots - t) / 2 * self.calls * self.operations(slots)
            B = sizes[-1] if saved >= COMPILATION else B
        return decoding if (B, slots) == (decoding.B, decoding.T) else self._of(B, slots)

    def _of(self, completions: int, slots: int) -> Decoding:
        if (completions, slots) not in self.others:
            self.others[completions, slots] = self._new(completions, slots)
        return self.others[completions, slots]

    def _new(self, completions: int, slots: int) -> Decoding:
        return Decoding(self.model, self.config, completions, self.S, slots, self.special)

    def _tokens_of_prompts(self, prompt: NDArray[Any], length: NDArray[Any]) -> NDArray[np.float32]:
        """Return 1.0 where a row's prompt contains a token [B, V]."""
        contained = np.zeros((self.P, self.all.seen.shape[1]), np.float32)
        for row, ids, count in zip(contained, prompt, length, strict=True):
            row[ids[:count]] = 1
        return contained.repeat(self.G, 0)

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
            ops.assign(self.all.keys[i], self.repeated(keys))
            ops.assign(self.all.values[i], self.repeated(values))
            x = layer.finish(x, attended)
        last = ops.gather(x, ops.arange(P) * S + length - 1, 0)
        logits = self.model.all_logits(last, head)
        V = logits.shape[-1]
        logits = ops.broadcast_to(logits.reshape((P, 1, V)), (P, G, V)).reshape((P * G, V))
        token = self.all.draw(logits, uniform, greedy, Tensor(0, ms.int32))
        return token, self.all.ends(token)

    def repeated(self, x: Tensor) -> Tensor:
        """Repeat the prompts' keys or values [P*K, S, D] for each completion, and append empty slots."""
        P, G, S, T, K = self.P, self.G, self.S, self.all.T, self.K
        D = x.shape[2]
        x = ops.broadcast_to(x.reshape((P, 1, K * S * D)), (P, G, K * S * D)).reshape((P * G * K, S, D))
        return ops.concat((x, ops.zeros((P * G * K, T, D), x.dtype)), 1)
