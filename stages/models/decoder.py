"""The decoder that Qwen2, Qwen3 and Llama share: its parameters under mindformers' names.

No weight is transposed or permuted between Hugging Face and mindformers: converting is renaming. With
qkv_concat mindformers fuses q/k/v (grouped per key-value head: its queries, its key, its value) and gate/up
(row by row).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from stages.models.family import HEAD, HF_EMBEDDING, HF_NORM, Cut, Experts, Rows, Weight
from stages.models.shape import Shape

Part = Callable[[Shape, int], Iterable[Weight]]
"""A layer's parameters of one kind."""

HEADS = (HEAD, "output_layer.weight")
"""Names of the head at Hugging Face and in mindformers, which checkpoints of tied models may repeat."""


@dataclass(frozen=True)
class Names:
    """mindformers' parameter names of one of its networks."""

    embedding: str
    norm: str
    head: str
    layers: str
    parts: Mapping[str, str]
    """Hugging Face's name within a layer -> mindformers'."""
    fused: tuple[str, str] | None = None
    """q/k/v and gate/up with qkv_concat; None: never fused."""
    router_bias: str | None = None
    """mlp.gate.e_score_correction_bias; None: the router has none."""

    def weight(self, layer: int, name: str, shape: tuple[int, ...], cut: Cut, kind: str = "weight") -> Weight:
        """One tensor of a layer; a bias has the rows of `shape`."""
        return self.fuse(layer, self.parts[name], (name,), shape, cut, kind)

    def fuse(
        self, layer: int, name: str, parts: tuple[str, ...], shape: tuple[int, ...], cut: Cut,
        kind: str = "weight", arrange: Callable[[], Iterable[Rows]] | None = None,
    ) -> Weight:  # fmt: skip
        """One parameter whose rows are arranged from tensors of a layer."""
        stored = tuple(f"model.layers.{layer}.{part}.{kind}" for part in parts)
        size = shape[:1] if kind == "bias" else shape
        return Weight(f"{self.layers}.{layer}.{name}.{kind}", stored, size, cut, layer, arrange)


LLAMA = Names(
    embedding="model.tok_embeddings.embedding_weight",
    norm="model.norm_out.weight",
    head=HEAD,
    layers="model.layers",
    parts={
        "input_layernorm": "attention_norm",
        "self_attn.q_proj": "attention.wq",
        "self_attn.k_proj": "attention.wk",
        "self_attn.v_proj": "attention.wv",
        "self_attn.o_proj": "attention.wo",
        "post_attention_layernorm": "ffn_norm",
        "mlp.gate_proj": "feed_forward.w1",
        "mlp.up_proj": "feed_forward.w3",
        "mlp.down_proj": "feed_forward.w2",
    },
    fused=("attention.w_qkv", "feed_forward.w_gate_hidden"),
)
"""mindformers 1.6.0, models/llama/convert_weight.py and research/qwen2_5/convert_weight.py."""
MCORE = Names(
    embedding="embedding.word_embeddings.weight",
    norm="decoder.final_layernorm.weight",
    head=HEADS[1],
    layers="decoder.layers",
    parts={
        "input_layernorm": "input_layernorm",
        "self_attn.q_proj": "self_attention.linear_q",
        "self_attn.k_proj": "self_attention.linear_k",
        "self_attn.v_proj": "self_attention.linear_v",
        "self_attn.q_norm": "self_attention.q_layernorm",
        "self_attn.k_norm": "self_attention.k_layernorm",
        "self_attn.o_proj": "self_attention.linear_proj",
        "post_attention_layernorm": "pre_mlp_layernorm",
        "mlp.gate_proj": "mlp.gating",
        "mlp.up_proj": "mlp.linear_fc1",
        "mlp.down_proj": "mlp.linear_fc2",
    },
)
"""mindformers 1.6.0, models/qwen3/utils.py: convert_name."""


def weights(
    shape: Shape, qkv_concat: bool, names: Names, bias: bool = False, attention: Part | None = None,
    experts: Callable[[Shape], Experts] | None = None,
) -> list[Weight]:  # fmt: skip
    """Return all parameters in the model's order.

    Args:
        shape: of the model.
        qkv_concat: fuse q/k/v and gate/up.
        names: of the network; those of q_norm and k_norm, if it has them.
        bias: q, k and v have one.
        attention: parameters of a layer's attention; None: grouped queries.
        experts: the layers' experts; None: every layer has one feed-forward network.
    """
    hidden, fused = (shape.hidden_size,), qkv_concat and names.fused is not None
    embedding = (shape.vocab_size, shape.hidden_size)
    moe = experts(shape) if experts else None
    listed = [Weight(names.embedding, (HF_EMBEDDING,), embedding, Cut.EMBEDDING)]
    for i in range(shape.num_hidden_layers):
        listed.append(names.weight(i, "input_layernorm", hidden, Cut.LAYER_NORM))
        listed += attention(shape, i) if attention else _attention(shape, names, i, bias, fused)
        listed.append(names.weight(i, "post_attention_layernorm", hidden, Cut.LAYER_NORM))
        if moe is None or i < moe.dense_layers:
            listed += _gated(names, i, "mlp", shape.hidden_size, shape.intermediate_size, fused)
        else:
            listed += _experts(names, i, shape.hidden_size, moe)
    listed.append(Weight(names.norm, (HF_NORM,), hidden, Cut.FINAL_NORM))
    if not shape.tie_word_embeddings:
        listed.append(Weight(names.head, (HEAD,), embedding, Cut.HEAD))
    return listed


def _attention(shape: Shape, names: Names, i: int, bias: bool, fused: bool) -> Iterator[Weight]:
    hidden, head = shape.hidden_size, shape.head_size
    queries, keys = shape.num_attention_heads * head, shape.num_key_value_heads * head
    projections = {"self_attn.q_proj": queries, "self_attn.k_proj": keys, "self_attn.v_proj": keys}
    kinds = ("weight", "bias") if bias else ("weight",)
    if fused and names.fused:
        for kind in kinds:
            size = (sum(projections.values()), hidden)
            groups = functools.partial(_groups, shape)
            yield names.fuse(i, names.fused[0], (*projections,), size, Cut.ROWS, kind, groups)
    else:
        for name, rows in projections.items():
            for kind in kinds:
                yield names.weight(i, name, (rows, hidden), Cut.ROWS, kind)
    for name in ("self_attn.q_norm", "self_attn.k_norm"):
        if name in names.parts:
            yield names.weight(i, name, (head,), Cut.LAYER_NORM)
    yield names.weight(i, "self_attn.o_proj", (hidden, queries), Cut.COLUMNS)


def _groups(shape: Shape) -> Iterator[Rows]:
    """Yield each key-value head's queries, its key and its value."""
    head, position = shape.head_size, 0
    counts = (head * (shape.num_attention_heads // shape.num_key_value_heads), head, head)
    for group in range(shape.num_key_value_heads):
        for part, count in enumerate(counts):
            yield Rows(part, group * count, slice(position, position + count))
            position += count


def _alternating(inner: int) -> list[Rows]:
    return [Rows(part, 0, slice(part, 2 * inner, 2)) for part in range(2)]


def _gated(names: Names, i: int, part: str, hidden: int, inner: int, fused: bool) -> Iterator[Weight]:
    """Yield gate, up and down of a feed-forward network."""
    gates = (f"{part}.gate_proj", f"{part}.up_proj")
    if fused and names.fused:
        arrange = functools.partial(_alternating, inner)
        yield names.fuse(i, names.fused[1], gates, (2 * inner, hidden), Cut.FUSED_ROWS, arrange=arrange)
    else:
        for name in gates:
            yield names.weight(i, name, (inner, hidden), Cut.ROWS)
    down = Cut.FUSED_COLUMNS if fused else Cut.COLUMNS
    yield names.weight(i, f"{part}.down_proj", (hidden, inner), down)


def _experts(names: Names, i: int, hidden: int, experts: Experts) -> Iterator[Weight]:
    """Yield a layer's router, its experts, [experts, out, in] each, and its shared experts."""
    count, inner = experts.count, experts.width
    yield names.weight(i, "mlp.gate", (count, hidden), Cut.ROUTER)
    if names.router_bias is not None:
        stored = f"model.layers.{i}.mlp.gate.e_score_correction_bias"
        yield Weight(f"{names.layers}.{i}.{names.router_bias}", (stored,), (count,), Cut.ROUTER, i)
    sizes = {"gate_proj": (inner, hidden), "up_proj": (inner, hidden), "down_proj": (hidden, inner)}
    for name, size in sizes.items():
        parts = tuple(f"mlp.experts.{expert}.{name}" for expert in range(count))
        yield names.fuse(i, names.parts[f"mlp.experts.{name}"], parts, (count, *size), Cut.EXPERTS)
    if experts.shared:
        yield from _gated(names, i, "mlp.shared_experts", hidden, inner * experts.shared, fused=False)


@dataclass(frozen=True)
class HeadRows:
    """The same rows of each head of a tensor; calling it yields their position."""

    heads: int
    size: int
    """Rows of a head in the tensor at Hugging Face."""
    first: int
    """First row of a head that belongs to the parameter."""
    count: int
    """Rows of a head that belong to it."""
    pairs: bool = False
    """Rotary positions turn rows 2i and 2i+1 at Hugging Face, i and i + count/2 in mindformers."""

    def __call__(self) -> Iterator[Rows]:
        """Yield the rows of one head after the other."""
        turns = 2 if self.pairs else 1
        count = self.count // turns
        for head in range(self.heads):
            for turn in range(turns):
                begin = head * self.count + turn * count
                yield Rows(0, head * self.size + self.first + turn, slice(begin, begin + count), turns)


def latent_attention(names: Names, shape: Shape, i: int) -> Iterator[Weight]:
    """Yield weights of latent attention; a head's parts with and without position are separate parameters."""
    extras, hidden, heads = shape.extras, shape.hidden_size, shape.num_attention_heads
    nope, rope, value = extras.qk_nope_head_dim, extras.qk_rope_head_dim, extras.v_head_dim
    queries, latent = extras.q_lora_rank, extras.kv_lora_rank

    def part(name: str, stored: str, width: int, cut: Cut, rows: HeadRows) -> Weight:
        size = (rows.heads * rows.count, width)
        return names.fuse(i, f"attention.{name}", (f"self_attn.{stored}",), size, cut, arrange=rows)

    yield names.weight(i, "self_attn.q_a_proj", (queries, hidden), Cut.FULL)
    yield names.weight(i, "self_attn.q_a_layernorm", (queries,), Cut.LAYER_NORM)
    yield part("l2q_nope_proj", "q_b_proj", queries, Cut.ROWS, HeadRows(heads, nope + rope, 0, nope))
    yield part("l2q_pe_proj", "q_b_proj", queries, Cut.ROWS, HeadRows(heads, nope + rope, nope, rope, True))
    shared = "kv_a_proj_with_mqa"
    yield part("kv2l_latent_kv", shared, hidden, Cut.FULL, HeadRows(1, latent + rope, 0, latent))
    yield part("kv2l_k_pe", shared, hidden, Cut.FULL, HeadRows(1, latent + rope, latent, rope, True))
    yield names.weight(i, "self_attn.kv_a_layernorm", (latent,), Cut.LAYER_NORM)
    yield part("lkv2kv_k_nope", "kv_b_proj", latent, Cut.ROWS, HeadRows(heads, nope + value, 0, nope))
    yield part("lkv2kv_v", "kv_b_proj", latent, Cut.ROWS, HeadRows(heads, nope + value, nope, value))
    yield names.weight(i, "self_attn.o_proj", (hidden, heads * value), Cut.COLUMNS)
