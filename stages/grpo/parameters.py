"""The model's parameters by our names, and by those of checkpoints.

Query, key and value are one matrix here: one larger product instead of three. It is put together from a
card's own rows, so it can be taken apart again without talking to anybody. Gate and up stay two: cutting
what one product gives in two costs more, forward and above all backward, than the second product.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stages.base.errors import InputError
from stages.models.config import ModelConfig

Array = NDArray[np.float32]

EMBEDDING = "model.tok_embeddings.embedding_weight"
HEAD = "lm_head.weight"


def parts(model: ModelConfig) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Our name and the checkpoint's names whose rows it stacks, in the model's order."""
    yield "embedding", (EMBEDDING,)
    for i in range(model.num_hidden_layers):
        ours, theirs = f"layers.{i}", f"model.layers.{i}"
        yield f"{ours}.attention_norm", (f"{theirs}.attention_norm.weight",)
        yield f"{ours}.qkv", tuple(f"{theirs}.attention.{name}.weight" for name in ("wq", "wk", "wv"))
        yield f"{ours}.qkv_bias", tuple(f"{theirs}.attention.{name}.bias" for name in ("wq", "wk", "wv"))
        yield f"{ours}.output", (f"{theirs}.attention.wo.weight",)
        yield f"{ours}.ffn_norm", (f"{theirs}.ffn_norm.weight",)
        yield f"{ours}.gate", (f"{theirs}.feed_forward.w1.weight",)
        yield f"{ours}.up", (f"{theirs}.feed_forward.w3.weight",)
        yield f"{ours}.down", (f"{theirs}.feed_forward.w2.weight",)
    yield "norm", ("model.norm_out.weight",)
    if not model.tie_word_embeddings:
        yield "head", (HEAD,)


def fuse(model: ModelConfig, tensors: Mapping[str, Any]) -> dict[str, Array]:
    """A checkpoint's tensors (one card's, or full) by our names, float32.

    Raises:
        InputError: a tensor is missing.
    """
    result = {}
    for name, sources in parts(model):
        for source in sources:
            if source not in tensors:
                raise InputError(
                    source, None, "the weights lack this tensor", "split the model that conf names"
                )
        result[name] = np.concatenate([np.asarray(tensors[source], np.float32) for source in sources])
    return result


def unfuse(model: ModelConfig, fused: Mapping[str, Array]) -> dict[str, Array]:
    """The inverse of `fuse`: views by the checkpoint's names."""
    heads, kv = model.num_attention_heads, model.num_key_value_heads
    shares = {3: (heads, kv, kv), 1: (1,)}  # rows of the stacked tensors, in proportion
    result: dict[str, Array] = {}
    for name, targets in parts(model):
        share = shares[len(targets)]
        unit = len(fused[name]) // sum(share)
        ends = np.cumsum(share)[:-1] * unit
        result.update(zip(targets, np.split(fused[name], ends), strict=True))
    return result
