"""Qwen3's models with experts: Qwen3's attention, and in every layer experts instead of one wide network.

mindformers 1.6.0 has its network for inference alone, and mindrlhf starts none; MindSpeed-RL takes it. The
weight tools use mindformers' names with a layer's experts behind each other, as its DeepSeek-V3 has them.

Source: transformers 4.57, models/qwen3_moe; mindformers 1.6.0, models/qwen3_moe/utils.py;
Ascend/MindSpeed-RL 05a90d7, configs/model/qwen3_30b_a3b.yaml and qwen3_235b_a22b.yaml; MindSpeed-LLM
a2c0733b9, examples/mcore/qwen3_moe and configs/checkpoint/model_cfg.json.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from stages.models.decoder import MCORE, weights
from stages.models.families.qwen2 import IDS, WINDOW_KEYS
from stages.models.families.qwen3 import LAYER_SPEC, attention_config, normed_heads, unbiased_attention
from stages.models.family import Converter, Experts, Family, Values
from stages.models.shape import ModelFields, Qwen3MoeConfig, Shape

NAMES = replace(
    MCORE,
    parts={
        **MCORE.parts,
        "mlp.gate": "mlp.router.weight",
        "mlp.experts.gate_proj": "mlp.experts.gating",
        "mlp.experts.up_proj": "mlp.experts.linear_fc1",
        "mlp.experts.down_proj": "mlp.experts.linear_fc2",
    },
)


_AUX_LOSS_COEFFICIENT = 0.001
"""Weight of the loss that balances the router; MindSpeed-RL's files name it."""
_EXPERTS_ONLY: Values = {"mlp_only_layers": [], "decoder_sparse_step": 1}


def _extras(shape: Shape) -> Qwen3MoeConfig:
    assert shape.qwen3_moe is not None  # stages.models.families.family_problems
    return shape.qwen3_moe


def _experts(shape: Shape) -> Experts:
    extras = _extras(shape)
    return Experts(extras.num_experts, extras.num_experts_per_tok, extras.moe_intermediate_size)


def _read(config: Mapping[str, Any]) -> Values | None:
    """Return the section's values; transformers 5 calls num_experts num_local_experts."""
    count = config.get("num_experts", config.get("num_local_experts"))
    if count is None:
        return None
    return {name: config.get(name) for name in Qwen3MoeConfig.__dataclass_fields__} | {"num_experts": count}


def _fixed(config: Mapping[str, Any]) -> Mapping[str, Sequence[Any]]:
    """Return the accepted values of further keys; layers without experts are not implemented."""
    count = config.get("num_experts", config.get("num_local_experts"))
    return {
        **unbiased_attention(config),
        "num_local_experts": (count,),
        "mlp_only_layers": ([], None),
        "decoder_sparse_step": (1,),
        "router_aux_loss_coef": (_AUX_LOSS_COEFFICIENT,),
    }


def _window(config: Mapping[str, Any]) -> Any:
    """Return the window, which every layer has.

    Source: transformers 4.57 and 5.12, models/qwen3_moe/modeling_qwen3_moe.py.
    """
    return config.get("sliding_window", 4096) if config.get("use_sliding_window") else None


def _megatron(model: ModelFields) -> Values:
    extras = _extras(model)
    return normed_heads(model) | {
        "num_experts": extras.num_experts,
        "moe_router_topk": extras.num_experts_per_tok,
        "moe_ffn_hidden_size": extras.moe_intermediate_size,
        "norm_topk_prob": extras.norm_topk_prob,
        "moe_grouped_gemm": True,
        "moe_permutation_async_comm": True,
        "moe_token_dispatcher_type": "alltoall_seq",
        "moe_router_load_balancing_type": "aux_loss",
        "moe_aux_loss_coeff": _AUX_LOSS_COEFFICIENT,
    }


FAMILY = Family(
    name="qwen3_moe",
    title="Qwen3-MoE",
    architecture="Qwen3MoeForCausalLM",
    model_type="qwen3_moe",
    key_value_heads=4,
    ids=IDS,
    weights=functools.partial(weights, names=NAMES, experts=_experts),
    section=_read,
    experts=_experts,
    head_dim=128,
    keys=frozenset({"head_dim", *WINDOW_KEYS, *Qwen3MoeConfig.__dataclass_fields__}),
    harmless={"output_router_logits": "selects what transformers returns, not what it computes"},
    fixed=_fixed,
    window=_window,
    hf_config=lambda model: attention_config(model) | asdict(_extras(model)) | _EXPERTS_ONLY,
    fuses=False,
    megatron=_megatron,
    converter=Converter("qwen3-moe", ("--moe-grouped-gemm", *LAYER_SPEC), ("05a90d7",)),
)
