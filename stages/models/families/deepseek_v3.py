"""DeepSeek-V3 and -R1: latent attention, experts, YaRN.

mindrlhf trains it from bfloat16 weights: the published ones, FP8, have to be cast before. The weight tools
convert as mindformers' research/deepseek3/convert_weight.py does.

Source: config.json of deepseek-ai/DeepSeek-V3; mindrlhf e8a8fc1, examples/grpo/deepseekv3_grpo_tutorial.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields, replace
from typing import Any

from stages.models.decoder import LLAMA, latent_attention, weights
from stages.models.family import (
    HEAD,
    HF_EMBEDDING,
    ExpertKeys,
    Experts,
    Family,
    Heads,
    Mindrlhf,
    Network,
    NetworkInputs,
    TokenIds,
    Values,
)
from stages.models.shape import DeepseekV3Config, ModelFields, Shape


def _extras(shape: Shape) -> DeepseekV3Config:
    assert shape.deepseek_v3 is not None  # stages.models.families.family_problems
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


def _network(inputs: NetworkInputs) -> Values:
    """Return the keys of model_config for every role.

    Source: mindformers 1.6.0, research/deepseek3/deepseek3_config.py; mindrlhf e8a8fc1,
    model_configs/deepseek_v3_config. Comments explain values that differ from the shipped files.
    """
    model, extras = inputs.model, _extras(inputs.model)
    return {
        "type": "DeepseekV3Config",
        "auto_register": "deepseek3_config.DeepseekV3Config",
        "batch_size": 1,
        "seq_length": inputs.seq_length,
        "hidden_size": model.hidden_size,
        "num_layers": model.num_hidden_layers,
        "num_heads": model.num_attention_heads,
        "intermediate_size": model.intermediate_size,
        "kv_lora_rank": extras.kv_lora_rank,
        "q_lora_rank": extras.q_lora_rank,
        "qk_rope_head_dim": extras.qk_rope_head_dim,
        "v_head_dim": extras.v_head_dim,
        "qk_nope_head_dim": extras.qk_nope_head_dim,
        "vocab_size": model.vocab_size,
        "multiple_of": 256,
        "rms_norm_eps": model.rms_norm_eps,
        # as in config.json; the shipped training files name 100000 and 100001, which are plain text in V3
        "bos_token_id": inputs.ids.bos,
        "pad_token_id": inputs.ids.pad,
        "ignore_token_id": -100,
        "compute_dtype": "bfloat16",
        "layernorm_compute_type": "float32",
        "softmax_compute_type": "float32",
        "rotary_dtype": "float32",
        "router_dense_type": "float32",
        "qkv_concat": False,
        "use_flash_attention": True,
        "offset": inputs.offset,
        "checkpoint_name_or_path": "",
        "theta": model.rope_theta,
    }


def _yarn(inputs: NetworkInputs) -> Values:
    """Return the keys of stretched positions.

    The published weights have them at every length: they also scale attention. The shipped training files
    leave them out, so that training and generation would be different models.
    """
    extras = _extras(inputs.model)
    return {
        "extend_method": "YARN",
        "scaling_factor": {key: getattr(extras, name) for name, key in _ROPE.items()},
    }


def _training(inputs: NetworkInputs) -> Values:
    """Return the keys of model_config in training."""
    return _network(inputs) | {
        "n_kv_heads": inputs.model.num_key_value_heads,
        "max_position_embeddings": max(_extras(inputs.model).rope_original_length, inputs.seq_length),
        "eos_token_id": inputs.ids.eos[0],
        "param_init_type": inputs.model.param_init_type,
        "use_past": False,
        **_yarn(inputs),
        "return_extra_loss": False,
        "mtp_depth": 0,
        "mtp_loss_factor": 0.3,
    }


def _predicting(inputs: NetworkInputs) -> Values:
    model = inputs.model
    return _network(inputs) | {
        "layernorm_compute_type": model.torch_dtype,
        "softmax_compute_type": model.torch_dtype,
        "rotary_dtype": model.torch_dtype,
        "router_dense_type": model.torch_dtype,
        "max_position_embeddings": model.max_position_embeddings,
        "eos_token_id": list(inputs.ids.eos),
        "param_init_type": model.torch_dtype,
        "use_past": True,
        "is_dynamic": True,
        **_yarn(inputs),
        "ffn_concat": False,
        "auto_map": {
            "AutoConfig": "deepseek3_config.DeepseekV3Config",
            "AutoModel": "deepseek3.DeepseekV3ForCausalLM",
        },
    }


def _routed(inputs: NetworkInputs) -> Values:
    """Return the keys of moe_config for every role."""
    extras = _extras(inputs.model)
    return {
        "expert_num": extras.n_routed_experts,
        "num_experts_chosen": extras.num_experts_per_tok,
        "routing_policy": "TopkRouterV2",
        "shared_expert_num": extras.n_shared_experts,
        "routed_scaling_factor": extras.routed_scaling_factor,
        "first_k_dense_replace": extras.first_k_dense_replace,
        "moe_intermediate_size": extras.moe_intermediate_size,
        "topk_group": extras.topk_group,
        "n_group": extras.n_group,
    }


def _routed_in_training(inputs: NetworkInputs) -> Values:
    return _routed(inputs) | {
        "topk_method": "noaux_tc",  # as generation routes; the shipped files choose among all groups
        "expert_group_size": 8,
        "capacity_factor": 1.5,
        "aux_loss_factor": 0.05,
        "balance_via_topk_bias": True,
        # 0 and the next 0: rewards alone move the policy; and mindrlhf hands no bias to generation
        "topk_bias_update_rate": 0,
        "aux_loss_factors": [0],
        "aux_loss_types": ["expert"],
        "z_loss_factor": 0.0,
        "use_fused_ops_topkrouter": True,
        "norm_topk_prob": _extras(inputs.model).norm_topk_prob,
        "expert_model_parallel": 1,
        "use_gating_sigmoid": True,
        "enable_sdrop": True,
        "use_gmm": False,
    }


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
    small={
        "q_lora_rank": 8,
        "kv_lora_rank": 8,
        "qk_nope_head_dim": 8,
        "qk_rope_head_dim": 4,
        "v_head_dim": 8,
        "n_routed_experts": 4,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 8,
        "first_k_dense_replace": 1,
        "n_group": 2,
        "topk_group": 1,
    },
    network=Network(
        arch=_ARCH,
        config=("research/deepseek3/deepseek3_config.py", "DeepseekV3Config"),
        training=_training,
        predicting=_predicting,
        num_blocks=512,
        experts=ExpertKeys(_routed_in_training, _routed),
    ),
    mindrlhf=Mindrlhf(
        main="examples/grpo/deepseekv3_grpo_tutorial/main.py",
        name="deepseek",
        model_name="deepseek",
        generates_apart=True,  # research/deepseek3/deepseek3_train2infer.py renames and transposes
        embedding=(129280, 7168),
        contracts=("e8a8fc1",),  # older ones call the trainer without the argument that it requires
        accuracy="accuracy_reward",
        special_tokens={"unk": "<unk>", "bos": "<｜begin▁of▁sentence｜>", "eos": _END, "pad": _END},
        environment={
            "MS_DEV_RUNTIME_CONF": "multi_stream:true",
            "MS_DEV_HOST_BLOCKING_RUN": "1",
            "ENABLE_LAZY_INLINE_NO_PIPELINE": "1",
        },
        notes=(
            "DeepSeek-V3's published weights are FP8, which nothing trains: model.path is a Hugging Face"
            " directory of bfloat16 ones, as mindformers' research/deepseek3/fp8_cast_bf16.py makes them",
        ),
    ),
)
