"""Conversion between the model's fused parameters and the tensors of checkpoints.

Query, key and value are one matrix here: one larger product instead of three. It stacks a card's own rows, so
no communication is needed to split it again. Gate and up stay separate: cutting the result of one product
takes longer, above all in the backward pass, than a second product.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stages.base.errors import InputError
from stages.models.config import ModelConfig
from stages.models.families import weights_of
from stages.models.family import HEAD, HF_EMBEDDING, HF_NORM

Array = NDArray[np.float32]

_QKV = (("weight", "qkv"), ("bias", "qkv_bias"))
_WITHIN = {
    "input_layernorm.weight": "attention_norm",
    **{f"self_attn.{part}_proj.{kind}": name for part in "qkv" for kind, name in _QKV},
    "self_attn.q_norm.weight": "query_norm",
    "self_attn.k_norm.weight": "key_norm",
    "self_attn.o_proj.weight": "output",
    "post_attention_layernorm.weight": "ffn_norm",
    "mlp.gate_proj.weight": "gate",
    "mlp.up_proj.weight": "up",
    "mlp.down_proj.weight": "down",
}
"""Hugging Face's name within a layer -> ours."""
_AROUND = {HF_EMBEDDING: "embedding", HF_NORM: "norm", HEAD: "head"}


def parts(model: ModelConfig) -> dict[str, tuple[str, ...]]:
    """Return, for each of our parameters, the checkpoint's tensors that it stacks, in the model's order."""
    result: dict[str, tuple[str, ...]] = {}
    for weight in weights_of(model):
        (stored,) = weight.parts
        if weight.layer is None:
            name = _AROUND[stored]
        else:
            name = f"layers.{weight.layer}.{_WITHIN[stored.removeprefix(f'model.layers.{weight.layer}.')]}"
        result[name] = (*result.get(name, ()), weight.name)
    return result


def fuse(model: ModelConfig, tensors: Mapping[str, Any]) -> dict[str, Array]:
    """Rename a checkpoint's tensors (one card's, or full) to our names as float32; copy only fused ones.

    Raises:
        InputError: a tensor is missing.
    """
    result = {}
    for name, sources in parts(model).items():
        for source in sources:
            if source not in tensors:
                raise InputError(
                    source, None, "the weights lack this tensor", "split the model that conf names"
                )
        arrays = [np.asarray(tensors[source], np.float32) for source in sources]
        result[name] = np.concatenate(arrays) if len(arrays) > 1 else arrays[0]
    return result


def unfuse(model: ModelConfig, fused: Mapping[str, Array]) -> dict[str, Array]:
    """Invert `fuse`: return views by the checkpoint's names."""
    heads, kv = model.num_attention_heads, model.num_key_value_heads
    shares = {3: (heads, kv, kv), 1: (1,)}  # rows of the stacked tensors, in proportion
    result: dict[str, Array] = {}
    for name, targets in parts(model).items():
        share = shares[len(targets)]
        unit = len(fused[name]) // sum(share)
        ends = np.cumsum(share)[:-1] * unit
        result.update(zip(targets, np.split(fused[name], ends), strict=True))
    return result
