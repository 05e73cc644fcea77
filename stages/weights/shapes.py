"""Names and shapes of Qwen2's parameters in mindformers; imports nothing, for plans ask it, too.

Source: mindformers 1.6.0, models/llama/llama_transformer.py and models/llama/llama.py.
"""

from __future__ import annotations

from typing import Protocol

EMBEDDING = "model.tok_embeddings.embedding_weight"
HEAD = "lm_head.weight"


class Shape(Protocol):
    """What the weights' shapes depend on; ModelConfig has all of it."""

    @property
    def hidden_size(self) -> int:
        """Width of the residual stream."""

    @property
    def num_hidden_layers(self) -> int:
        """Decoder layers."""

    @property
    def num_attention_heads(self) -> int:
        """Query heads."""

    @property
    def num_key_value_heads(self) -> int:
        """Key and value heads."""

    @property
    def intermediate_size(self) -> int:
        """Width of the feed-forward layer."""

    @property
    def vocab_size(self) -> int:
        """Rows of the embedding."""

    @property
    def tie_word_embeddings(self) -> bool:
        """Whether lm_head is the embedding."""


def parameter_shapes(shape: Shape, qkv_concat: bool = False) -> dict[str, tuple[int, ...]]:
    """Every mindformers parameter and its full shape ([out, in] for linear layers), in the model's order."""
    hidden, inner = shape.hidden_size, shape.intermediate_size
    head = hidden // shape.num_attention_heads
    queries, keys = shape.num_attention_heads * head, shape.num_key_value_heads * head
    attention: dict[str, tuple[int, ...]] = {}
    for part, rows in (("wq", queries), ("wk", keys), ("wv", keys)):
        attention |= {f"attention.{part}.weight": (rows, hidden), f"attention.{part}.bias": (rows,)}
    feed_forward: dict[str, tuple[int, ...]] = {
        "feed_forward.w1.weight": (inner, hidden),
        "feed_forward.w3.weight": (inner, hidden),
    }
    if qkv_concat:
        attention = {
            "attention.w_qkv.weight": (queries + 2 * keys, hidden),
            "attention.w_qkv.bias": (queries + 2 * keys,),
        }
        feed_forward = {"feed_forward.w_gate_hidden.weight": (2 * inner, hidden)}
    layer: dict[str, tuple[int, ...]] = {
        "attention_norm.weight": (hidden,),
        **attention,
        "attention.wo.weight": (hidden, queries),
        "ffn_norm.weight": (hidden,),
        **feed_forward,
        "feed_forward.w2.weight": (hidden, inner),
    }
    result: dict[str, tuple[int, ...]] = {EMBEDDING: (shape.vocab_size, hidden)}
    for i in range(shape.num_hidden_layers):
        result |= {f"model.layers.{i}.{name}": size for name, size in layer.items()}
    result["model.norm_out.weight"] = (hidden,)
    if not shape.tie_word_embeddings:
        result[HEAD] = (shape.vocab_size, hidden)
    return result
