"""Qwen3's dense models: heads of a size of their own, queries and keys normed per head, no biases.

mindformers 1.6.0 has its network for inference alone (models/qwen3/modeling_qwen3.py raises in training), and
mindrlhf starts none; MindSpeed-RL takes it.

Source: transformers 4.57, models/qwen3/modeling_qwen3.py; mindformers 1.6.0, models/qwen3;
Ascend/MindSpeed-RL 05a90d7, configs/model/qwen3_8b.yaml and qwen3_32b.yaml; MindSpeed-LLM a2c0733b9,
examples/mcore/qwen3 and configs/checkpoint/model_cfg.json.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

from stages.models.decoder import MCORE, weights
from stages.models.families.qwen2 import (
    IDS,
    WINDOW_KEYS,
    attention_values,
    megatron,
    sliding_window,
    window,
)
from stages.models.family import Converter, Family, Values
from stages.models.shape import ModelFields

LAYER_SPEC = ("--spec", "mindspeed_llm.tasks.models.spec.qwen3_spec", "layer_spec")


def attention_config(model: ModelFields) -> Values:
    """Return the additional keys of config.json about attention."""
    return {"attention_bias": False, "head_dim": model.head_size, **sliding_window(model)}


def unbiased_attention(config: Mapping[str, Any]) -> Mapping[str, Sequence[Any]]:
    """Return the accepted values of keys about attention, which has no biases here."""
    return {**attention_values(config), "attention_bias": (False,)}


def normed_heads(model: ModelFields) -> Values:
    """MindSpeed-RL's keys of any Qwen3's attention, in place of Qwen2's bias."""
    qwen2 = megatron(model)
    del qwen2["add_qkv_bias"]
    return qwen2 | {"qk_layernorm": True, "kv_channels": model.head_size}


FAMILY = Family(
    name="qwen3",
    title="Qwen3",
    architecture="Qwen3ForCausalLM",
    model_type="qwen3",
    key_value_heads=32,
    ids=IDS,
    weights=functools.partial(weights, names=MCORE),
    head_dim=128,
    hf_config=attention_config,
    keys=frozenset({"head_dim"}) | WINDOW_KEYS,
    fixed=unbiased_attention,
    window=window,
    fuses=False,
    megatron=normed_heads,
    converter=Converter("qwen3", LAYER_SPEC, ("05a90d7",)),
)
