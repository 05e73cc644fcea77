"""DeepSeek-V3 and -R1: latent attention, experts, YaRN.

mindrlhf trains it, from weights that mindformers' research/deepseek3/convert_weight.py made; the weight tools
make the same of bfloat16 ones.

Source: config.json of deepseek-ai/DeepSeek-V3; mindrlhf e8a8fc1, examples/grpo/deepseekv3_grpo_tutorial.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

from stages.models.decoder import LLAMA, latent_attention, weights
from stages.models.family import (
    HEAD,
    HF_EMBEDDING,
    Experts,
    Family,
    Heads,
    Mindrlhf,
    Network,
    TokenIds,
    Values,
)
from stages.models.shape import DeepseekV3Config, ModelFields, Shape


def _extras(shape: Shape) -> DeepseekV3Config:
    assert shape.deepseek_v3 is not None  # stages.models.families.RULES
    return shape.deepseek_v3


NAMES = replace(
    LLAMA,
    parts={
        **LLAMA.parts,
        "self_attn.q_a_proj": "attention.q2l_proj",
        "self_attn.q_a_layernorm": "attention.lq_norm",
        "self_attn.kv_a_layernorm": "attention.lkv_norm",
        "mlp.gate": "feed_forward.routed_experts.router.dense",
        "mlp.experts.gate_proj": "feed_forward.routed_experts.ffn.w1",
        "mlp.experts.up_proj": "feed_forward.routed_experts.ffn.w3",
        "mlp.experts.down_proj": "feed_forward.routed_experts.ffn.w2",
        "mlp.shared_experts.gate_proj": "feed_forward.shared_experts.w1",
        "mlp.shared_experts.up_proj": "feed_forward.shared_experts.w3",
        "mlp.shared_experts.down_proj": "feed_forward.shared_experts.w2",
    },
    fused=None,
    router_bias="feed_forward.routed_experts.router.router.topk_bias",
)
"""mindformers 051d65f, research/deepseek3/convert_weight.py with use_grouped_gemm=false, which use_gmm=false,
mindrlhf's, wants."""


def _experts(shape: Shape) -> Experts:
    extras = _extras(shape)
    return Experts(
        extras.n_routed_experts, extras.num_experts_per_tok, extras.moe_intermediate_size,
        extras.n_shared_experts, extras.first_k_dense_replace,
    )  # fmt: skip


def _second_next(shape: Shape) -> tuple[str, str]:
    return f"model.layers.{shape.num_hidden_layers}.", "the layer that predicts a second token ahead"


def _repeated(shape: Shape) -> Mapping[str, str]:
    last, _ = _second_next(shape)
    return {f"{last}embed_tokens.weight": HF_EMBEDDING, f"{last}shared_head.head.weight": HEAD}


_ROPE = {
    "rope_beta_fast": "beta_fast",
    "rope_beta_slow": "beta_slow",
    "rope_factor": "factor",
    "rope_mscale": "mscale",
    "rope_mscale_all_dim": "mscale_all_dim",
    "rope_original_length": "original_max_position_embeddings",
}
"""Field of the section -> key of rope_scaling."""


def _read(config: Mapping[str, Any]) -> Values | None:
    if "kv_lora_rank" not in config:
        return None
    rope = config.get("rope_scaling") or config.get("rope_parameters")
    rope = rope if isinstance(rope, dict) else {}
    values = {field.name: config.get(field.name) for field in fields(DeepseekV3Config)}
    return values | {name: rope.get(key) for name, key in _ROPE.items()}


def _fixed(config: Mapping[str, Any]) -> Mapping[str, Sequence[Any]]:
    """Return the accepted values of further keys."""
    nope, rope = config.get("qk_nope_head_dim"), config.get("qk_rope_head_dim")
    both = nope + rope if isinstance(nope, int) and isinstance(rope, int) else None
    return {
        "attention_bias": (False,),
        "moe_layer_freq": (1,),
        "norm_topk_prob": (True,),  # mindrlhf's file for generation does not name it
        "rope_interleave": (True,),
        "scoring_func": ("sigmoid",),
        "topk_method": ("noaux_tc",),
        "num_local_experts": (config.get("n_routed_experts"),),
        "head_dim": (rope,),
        "qk_head_dim": (both,),
    }


_HARMLESS = {
    "auto_map": "names the repository's copy of the same network",
    "num_nextn_predict_layers": "the layers that predict further tokens are not trained",
    "ep_size": "a layout of experts on cards; the section layout configures it",
    "aux_loss_alpha": "a loss of pre-training",
    "seq_aux": "a loss of pre-training",
    "pretraining_tp": "splits matrix products without changing their results",
    "quantization_config": "describes the published FP8 files; engines read a bfloat16 copy",
}


def _hf_config(model: ModelFields) -> Values:
    extras = asdict(_extras(model))
    scaling = {"type": "yarn", **{key: extras.pop(name) for name, key in _ROPE.items()}}
    fixed = {"attention_bias": False, "scoring_func": "sigmoid", "topk_method": "noaux_tc"}
    return extras | {"rope_scaling": scaling} | fixed


def _heads(model: ModelFields) -> Heads:
    """Return the attention's sizes; only the compressed latent is cached, and every card needs all of it."""
    extras, heads = _extras(model), model.num_attention_heads
    computed = 2 * heads * (extras.qk_nope_head_dim + extras.qk_rope_head_dim + extras.v_head_dim)
    latent = extras.kv_lora_rank + extras.qk_rope_head_dim
    return Heads(computed, "queries + keys + 2 values", latent, cut=False)


_END = "<｜end▁of▁sentence｜>"
_IDS = TokenIds(0, (1,), 1)
_ARCH = {"type": "DeepseekV3ForCausalLM", "auto_register": "deepseek3.DeepseekV3ForCausalLM"}
FAMILY = Family(
    name="deepseek_v3",
    title="DeepSeek-V3",
    architecture="DeepseekV3ForCausalLM",
    model_type="deepseek_v3",
    key_value_heads=128,
    ids={"base": _IDS, "instruct": _IDS},
    weights=functools.partial(
        weights, names=NAMES, attention=functools.partial(latent_attention, NAMES), experts=_experts
    ),
    section=_read,
    custom_attention=True,
    keys=frozenset(field.name for field in fields(DeepseekV3Config)),
    harmless=_HARMLESS,
    fixed=_fixed,
    rope={"yarn": tuple(_ROPE.values())},
    experts=_experts,
    heads=_heads,
    untrained=_second_next,
    repeated=_repeated,
    hf_config=_hf_config,
    fuses=False,
    stored_as_float=False,  # FP8
    network=Network(_ARCH, Path(__file__).with_suffix(".yaml"), num_blocks=512),
    mindrlhf=Mindrlhf(
        main="examples/grpo/deepseekv3_grpo_tutorial/main.py",
        name="deepseek",
        model_name="deepseek",
        converts=True,
        contracts=("e8a8fc1",),  # older ones call the trainer without the argument that it requires
        accuracy="accuracy_reward",
        special_tokens={"unk": "<unk>", "bos": "<｜begin▁of▁sentence｜>", "eos": _END, "pad": _END},
        environment={
            "MS_DEV_RUNTIME_CONF": "multi_stream:true",
            "MS_DEV_HOST_BLOCKING_RUN": "1",
            "ENABLE_LAZY_INLINE_NO_PIPELINE": "1",
        },
        notes=(
            "DeepSeek-V3's published weights are FP8: mindformers' research/deepseek3/convert_weight.py makes"
            " bfloat16 ones; model.path is their directory, with config.json, tokenizer and an index",
        ),
    ),
)
