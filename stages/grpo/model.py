"""Qwen2, Qwen3 or Llama on one card's share of the heads, for training and for generating.

The tokens of all prompts and completions go through norms and products as one flat list; only attention
arranges them in rows. A prompt is computed once for all of its completions that are computed together, in
training and in generation; completions attend to their prompt's keys and their own.

Shapes: P prompts, G completions of each, S prompt slots (padded on the right), T completion slots, J rows of
W slots in which the completions of a prompt lie (packing.py), N tokens in all, H hidden, V this card's
vocabulary, Q and K this card's query and key/value heads, R = Q / K, D head.
Source: transformers, models/{qwen2,qwen3,llama}/modeling_*.py; mindformers 1.6.0,
models/llama/llama_transformer.py.
"""

from __future__ import annotations

from collections.abc import Mapping

import mindspore as ms
import numpy as np
from mindspore import Parameter, Tensor, nn, ops
from numpy.typing import NDArray

from stages.base.errors import InputError
from stages.grpo.attention import (
    attend_with_prompt,
    attend_within,
    causal_mask,
    half_swap,
    prompt_mask,
    rotary_table,
    row_mask,
)
from stages.grpo.collectives import AllReduce, CopyToGroup, Group, Identity, SumOverGroup
from stages.grpo.operators import (
    Gated,
    Lookup,
    outer,
    overwrite,
    part,
    plain_product,
    product,
    rms_norm,
    split_sizes,
)
from stages.grpo.parallel import SINGLE, Mesh
from stages.grpo.parameters import parts
from stages.grpo.token_logits import TokenLogits, TokenLogitsAndMeans
from stages.models.config import ModelConfig


def local_ids(ids: Tensor, first: int, count: int) -> tuple[Tensor, Tensor]:
    """Return rows of ids [N] in a card's part of the vocabulary, 0 for other ids; and 1.0 for its own ids."""
    local = ids - first
    is_local = ops.logical_and(local >= 0, local < count)
    return ops.select(is_local, local, ops.zeros_like(local)), is_local.astype(ms.float32)


def _zeros(name: str, *shape: int) -> Parameter:
    return Parameter(Tensor(np.zeros(shape, np.float32)), name=name)


class Layer(nn.Cell):
    """One decoder layer without its attention: the parts before (`project`) and after (`finish`) it."""

    def __init__(self, model: ModelConfig, index: int, model_parallel: int, group: Group | None) -> None:
        """Create zero weights for the share of one of the `model_parallel` cards in `group`."""
        super().__init__()
        H, D = model.hidden_size, model.head_size
        self.Q = model.num_attention_heads // model_parallel
        self.K = model.num_key_value_heads // model_parallel
        self.D, F = D, model.intermediate_size // model_parallel
        self.epsilon, self.swap = model.rms_norm_eps, half_swap(D)
        names = parts(model)
        prefix = f"layers.{index}"
        self.attention_norm = _zeros(f"{prefix}.attention_norm", H)
        self.qkv = _zeros(f"{prefix}.qkv", (self.Q + 2 * self.K) * D, H)
        self.biased, self.normed = f"{prefix}.qkv_bias" in names, f"{prefix}.query_norm" in names
        if self.biased:
            self.qkv_bias = _zeros(f"{prefix}.qkv_bias", (self.Q + 2 * self.K) * D)
        if self.normed:
            self.query_norm, self.key_norm = (_zeros(f"{prefix}.{part}_norm", D) for part in ("query", "key"))
        self.output = _zeros(f"{prefix}.output", H, self.Q * D)
        self.ffn_norm = _zeros(f"{prefix}.ffn_norm", H)
        self.gate = _zeros(f"{prefix}.gate", F, H)
        self.up = _zeros(f"{prefix}.up", F, H)
        self.down = _zeros(f"{prefix}.down", H, F)
        self.gated = Gated()
        self.enter = CopyToGroup(group) if group else Identity()
        self.leave = SumOverGroup(group) if group else Identity()

    def project(
        self, x: Tensor, cos: Tensor, sin: Tensor, sent_rows: Tensor | None = None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Project x [N, H] to query [N, Q, D] (scaled), key and value [N, K, D], all rotated.

        cos and sin: [N, (Q+2K)*D]. `sent_rows` (collectives.py): only if the graph does not know N; so below.
        """
        Q, K, D = self.Q, self.K, self.D
        y = product(self.enter(rms_norm(x, self.attention_norm, self.epsilon), sent_rows), self.qkv)
        ones = ops.full((x.shape[0], 1), 1.0, dtype=ms.float32)
        if self.biased:
            y = y + outer(ones, self.qkv_bias.reshape((1, -1)))
        if self.normed:
            y = self.norm_heads(y, ones)
        swapped = plain_product(y.reshape((-1, D)), self.swap).reshape(y.shape)
        y = y * cos + swapped * sin
        query, key, value = split_sizes(y, -1, (Q * D, K * D, K * D))
        return query.reshape((-1, Q, D)), key.reshape((-1, K, D)), value.reshape((-1, K, D))

    def norm_heads(self, y: Tensor, ones: Tensor) -> Tensor:
        """Normalise each query and key head of y [N, (Q+2K)*D]; values stay.

        All cards hold both weights and normalise only their own heads, so the gradients are summed.
        """
        Q, K, D = self.Q, self.K, self.D
        mean = plain_product((y * y).reshape((-1, D)), ops.full((D, 1), 1 / D, dtype=ms.float32))
        factor = ops.rsqrt(mean + self.epsilon).reshape((-1, Q + 2 * K))
        factor = ops.concat(
            (part(factor, 1, 0, Q + K), outer(ones, ops.full((1, K), 1.0, dtype=ms.float32))), 1
        )
        stretched = outer(factor.reshape((-1, 1)), ops.full((1, D), 1.0, dtype=ms.float32)).reshape(y.shape)
        # Concatenated first: a parameter that enters a cell with a backward pass of its own directly is read
        # only once, and its updates are not seen (mindspore 2.7.0, CPU).
        both = self.enter(ops.concat((self.query_norm, self.key_norm)), None)
        unit_scale = ops.full((K * D,), 1.0, dtype=ms.float32)
        weight = ops.concat((ops.tile(both[:D], (Q,)), ops.tile(both[D:], (K,)), unit_scale))
        return y * stretched * outer(ones, weight.reshape((1, -1)))

    def finish(self, x: Tensor, attended: Tensor, sent_rows: Tensor | None = None) -> Tensor:
        """Compute the layer's output [N, H] from x [N, H] and attended [N, Q*D]."""
        x = x + self.leave(product(attended, self.output), sent_rows)
        y = self.enter(rms_norm(x, self.ffn_norm, self.epsilon), sent_rows)
        y = product(self.gated(product(y, self.gate), product(y, self.up)), self.down)
        return x + self.leave(y, sent_rows)


class CausalLM(nn.Cell):
    """The model's weights on one card, and the log-probabilities of given completions."""

    def __init__(
        self, model: ModelConfig, positions: int, mesh: Mesh = SINGLE, group: Group | None = None,
        split_embedding: bool = False, split_head: bool = False, entropy_gradient: bool = False,
    ) -> None:  # fmt: skip
        """Create zero weights, which `load` fills.

        Args:
            model: the full model.
            positions: longest prompt and completion together, in tokens.
            mesh: this card among those that share one copy of the weights.
            group: those cards; None for a single one.
            split_embedding: the embedding's rows are split over the group, else every card has all of them.
            split_head: the same for the head; a tied head is split as the embedding is.
            entropy_gradient: entropies have a gradient, which takes another pass over the logits.
        """
        super().__init__()
        self.H, self.epsilon = model.hidden_size, model.rms_norm_eps
        self.vocab_size, self.cards = model.vocab_size, mesh.model_parallel
        tied = model.tie_word_embeddings
        self.split_embedding = split_embedding and group is not None
        self.split_head = self.split_embedding if tied else split_head and group is not None
        self.V = model.vocab_size // (mesh.model_parallel if self.split_head else 1)
        rows = model.vocab_size // (mesh.model_parallel if self.split_embedding else 1)
        self.embedding_ids = (mesh.model_index * rows, rows) if self.split_embedding else (0, rows)
        self.head_ids = (mesh.model_index * self.V, self.V) if self.split_head else (0, self.V)
        self.embedding = _zeros("embedding", rows, self.H)
        self.layers = nn.CellList(
            [Layer(model, i, mesh.model_parallel, group) for i in range(model.num_hidden_layers)]
        )
        self.norm = _zeros("norm", self.H)
        self.head = self.embedding if tied else _zeros("head", self.V, self.H)
        # Read now: MindSpore adds prefixes once this cell becomes part of another.
        self.names = tuple(parameter.name for parameter in self.trainable_params())
        self.cos, self.sin = rotary_table(model, positions, self.layers[0].Q, self.layers[0].K)
        self.tied, self.lookup = tied, Lookup()
        self.entropy_gradient = entropy_gradient
        self.token_logits = (TokenLogitsAndMeans if entropy_gradient else TokenLogits)(self.H, self.V)
        if group is not None:
            self.enter, self.leave = CopyToGroup(group), SumOverGroup(group)
            self.all_gather, self.all_reduce = group.all_gather(), AllReduce(group)
            self.own_column = Tensor(np.eye(self.cards, dtype=np.float32)[[mesh.model_index]])

    def load(self, fused: Mapping[str, NDArray[np.float32]]) -> None:
        """Load weights by the names of parameters.parts.

        Raises:
            InputError: a tensor has the shape of another model's.
        """
        for name, parameter in zip(self.names, self.trainable_params(), strict=True):
            if fused[name].shape != parameter.shape:
                rule = f"must have shape {list(parameter.shape)}"
                remedy = "use weights of the model that the configuration names"
                raise InputError(name, list(fused[name].shape), rule, remedy)
            overwrite(parameter, fused[name])

    def weights(self) -> dict[str, NDArray[np.float32]]:
        """Return this card's weights, by the names of parameters.parts."""
        values = [parameter.asnumpy() for parameter in self.trainable_params()]
        return dict(zip(self.names, values, strict=True))

    def embed_and_head(self, ids: Tensor, sent_rows: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Embed ids [N] to [N, H]; return also the head [V, H], so that tied weights have one gradient."""
        local, here = local_ids(ids, *self.embedding_ids) if self.split_embedding else (ids, ids)
        if self.tied:
            # Read once: MindSpore copies a parameter for each place of a graph that reads it, if two do.
            x, head = self.lookup(self.embedding.reshape(self.embedding.shape), local)
        else:
            x, head = ops.gather(self.embedding, local, 0), self.head
        return self.leave(x * here.expand_dims(1), sent_rows) if self.split_embedding else x, head

    def rotary(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Return cos and sin [N, (Q+2K)*D] of positions [N]."""
        return ops.gather(self.cos, positions, 0), ops.gather(self.sin, positions, 0)

    def all_logits(self, x: Tensor, head: Tensor) -> Tensor:
        """Compute all logits, on every card, from the last layer's x [N, H]; no gradient."""
        x = rms_norm(x, self.norm, self.epsilon)
        logits = product(self.enter(x, None) if self.split_head else x, head)
        if not self.split_head:
            return logits
        gathered = self.all_gather(logits).reshape((self.cards, -1, self.V))
        return gathered.transpose((1, 0, 2)).reshape((-1, self.vocab_size))

    def construct(
        self, ids: Tensor, position: Tensor, length: Tensor, prompt: Tensor, completion: Tensor,
        first: Tensor, slot: Tensor, before: Tensor, target: Tensor, token: Tensor,
        sent_slots: Tensor | None, sent_tokens: Tensor | None, temperature: float,
    ) -> tuple[Tensor, Tensor]:  # fmt: skip
        """Compute log-probabilities and entropies [P*G, T] of the tokens of given completions.

        Both are undefined on padding; entropies have no gradient unless entropy_gradient. All arguments but
        the temperature, which divides the logits, are the results of batch.packed.
        """
        x, head = self.hidden(ids, position, length, prompt, completion, first, slot, sent_slots)
        P, J, W = completion.shape
        max_rows = P * J * W + token.shape[0]  # prompts predict the first tokens
        x = ops.gather(x, before, 0)
        result = self.token_logprobs(x, target, head, temperature, max_rows, sent_tokens)
        positions = token.reshape((-1,))
        logprob, entropy = ops.gather(result[0], positions, 0), ops.gather(result[1], positions, 0)
        return logprob.reshape(token.shape), entropy.reshape(token.shape)

    def hidden(
        self, ids: Tensor, position: Tensor, length: Tensor, prompt: Tensor, completion: Tensor,
        first: Tensor, slot: Tensor, sent_rows: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:  # fmt: skip
        """Compute the last layer's output [N, H], and return the head; arguments as in `construct`."""
        P, S = prompt.shape
        J, W = completion.shape[1], completion.shape[2]
        cos, sin = self.rotary(position)
        heads = self.layers[0].Q
        within = ops.broadcast_to(prompt_mask(length, S) + causal_mask(S), (P, heads, S, S))
        mask = ops.concat(
            (
                ops.broadcast_to(prompt_mask(length, S), (P, heads * J, W, S)),
                row_mask(first, self.layers[0].K, heads // self.layers[0].K),
            ),
            -1,
        )
        prompt_rows, completion_rows = prompt.reshape((-1,)), completion.reshape((-1,))
        x, head = self.embed_and_head(ids, sent_rows)
        for layer in self.layers:
            q, k, v = layer.project(x, cos, sin, sent_rows)
            q_prompt, q = ops.gather(q, prompt_rows, 0), ops.gather(q, completion_rows, 0)
            k_prompt, k = ops.gather(k, prompt_rows, 0), ops.gather(k, completion_rows, 0)
            v_prompt, v = ops.gather(v, prompt_rows, 0), ops.gather(v, completion_rows, 0)
            first, keys, values = attend_within(q_prompt, k_prompt, v_prompt, within)
            attended = attend_with_prompt(q, k, v, keys, values, mask, J)
            x = layer.finish(x, ops.gather(ops.concat((first, attended)), slot, 0), sent_rows)
        return x, head

    def token_logprobs(
        self, x: Tensor, ids: Tensor, head: Tensor, temperature: float, max_rows: int,
        sent_rows: Tensor | None,
    ) -> tuple[Tensor, Tensor]:  # fmt: skip
        """Compute log-probabilities of ids [M] after the last layer's output x [M, H], and entropies [M].

        `max_rows`, the largest M, decides in how many parts the logits are computed. Each card computes the
        log-sum of its part of the vocabulary; the parts are then summed over the cards.
        Source of the split softmax: Megatron-LM, core/tensor_parallel/cross_entropy.py.
        """
        x = rms_norm(x, self.norm if temperature == 1 else self.norm / temperature, self.epsilon)
        if self.split_head:
            x = self.enter(x, sent_rows)
        local, here = local_ids(ids, *self.head_ids)
        log_sum, chosen, mean, _ = self.token_logits(x, head, local, max_rows)
        log_sum, chosen, mean = log_sum.reshape((-1,)), chosen.reshape((-1,)) * here, mean.reshape((-1,))
        if self.split_head:
            column = outer(ops.stop_gradient(log_sum).reshape((-1, 1)), self.own_column)
            largest = ops.amax(self.all_reduce(column, sent_rows), -1)
            share = ops.exp(log_sum - largest)
            weighted = mean * share if self.entropy_gradient else ops.stop_gradient(mean * share)
            sums = self.leave(ops.stack((share, weighted, chosen), 1), sent_rows)
            total, weighted, chosen = [part.reshape((-1,)) for part in split_sizes(sums, -1, (1, 1, 1))]
            log_sum, mean = ops.log(total) + largest, weighted / total
        entropy = log_sum - mean
        return chosen - log_sum, entropy if self.entropy_gradient else ops.stop_gradient(entropy)
