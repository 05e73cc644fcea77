"""DeepSeek-V3 and -R1: latent attention, experts, YaRN.

Only mindrlhf's files are rendered from it; mindformers' research/deepseek3/convert_weight.py makes the
weights that it reads.

Source: config.json of deepseek-ai/DeepSeek-V3; mindformers, research/deepseek3/deepseek3_config.py; mindrlhf
e8a8fc1, examples/grpo/deepseekv3_grpo_tutorial and model_configs/deepseek_v3_config. Values that differ from
the shipped files say why.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from annotated_types import Ge, Gt

from stages.models.family import Family, Mindrlhf, Network, Role, TokenIds, Values

if TYPE_CHECKING:
    from stages.models.config import ModelConfig

Positive = Annotated[int, Ge(1)]


@dataclass(frozen=True)
class DeepseekV3Config:
    """What a DeepSeek-V3 has besides a Qwen2's shape."""

    q_lora_rank: Positive
    """Width of the compressed queries."""
    kv_lora_rank: Positive
    """Width of the compressed keys and values."""
    qk_nope_head_dim: Positive
    """Elements of a query or key head without position."""
    qk_rope_head_dim: Positive
    """Elements of it with one."""
    v_head_dim: Positive
    """Elements of a value head."""
    n_routed_experts: Positive
    n_shared_experts: Positive
    num_experts_per_tok: Positive
    """Routed experts that see a token."""
    moe_intermediate_size: Positive
    """Width of one expert."""
    first_k_dense_replace: Annotated[int, Ge(0)]
    """Leading layers with one wide feed-forward network instead of experts."""
    n_group: Positive
    """Groups that the routed experts form."""
    topk_group: Positive
    """Groups among which a token's experts are chosen."""
    routed_scaling_factor: Annotated[float, Gt(0)]
    """Factor of the routed experts' sum."""
    norm_topk_prob: bool
    """Whether the chosen experts' weights are scaled to the sum 1."""
    rope_factor: Annotated[float, Gt(0)]
    """rope_scaling (YaRN), this and the next five: how far positions are stretched."""
    rope_original_length: Positive
    """Positions before that."""
    rope_beta_fast: Annotated[float, Gt(0)]
    rope_beta_slow: Annotated[float, Gt(0)]
    rope_mscale: Annotated[float, Gt(0)]
    rope_mscale_all_dim: Annotated[float, Gt(0)]


def _own(model: ModelConfig) -> DeepseekV3Config:
    assert model.deepseek_v3 is not None  # stages.models.families.RULES
    return model.deepseek_v3


def count(model: ModelConfig) -> int:
    """Elements of all weights; the layer that predicts a second token ahead is not trained."""
    shape, hidden, heads = _own(model), model.hidden_size, model.num_attention_heads
    queries = shape.q_lora_rank * (hidden + 1 + heads * (shape.qk_nope_head_dim + shape.qk_rope_head_dim))
    values = shape.kv_lora_rank * (hidden + 1 + heads * (shape.qk_nope_head_dim + shape.v_head_dim))
    attention = queries + values + hidden * (shape.qk_rope_head_dim + heads * shape.v_head_dim)
    experts = shape.n_routed_experts + shape.n_shared_experts
    sparse = 3 * hidden * shape.moe_intermediate_size * experts + (hidden + 1) * shape.n_routed_experts
    dense = min(shape.first_k_dense_replace, model.num_hidden_layers)
    feed_forward = dense * 3 * hidden * model.intermediate_size + (model.num_hidden_layers - dense) * sparse
    embeddings = (1 if model.tie_word_embeddings else 2) * model.vocab_size * hidden
    return model.num_hidden_layers * (attention + 2 * hidden) + feed_forward + embeddings + hidden


def _shape(role: Role) -> Values:
    model, shape = role.model, _own(role.model)
    return {
        "type": "DeepseekV3Config",
        "auto_register": "deepseek3_config.DeepseekV3Config",
        "batch_size": 1,
        "seq_length": role.seq_length,
        "hidden_size": model.hidden_size,
        "num_layers": model.num_hidden_layers,
        "num_heads": model.num_attention_heads,
        "intermediate_size": model.intermediate_size,
        "kv_lora_rank": shape.kv_lora_rank,
        "q_lora_rank": shape.q_lora_rank,
        "qk_rope_head_dim": shape.qk_rope_head_dim,
        "v_head_dim": shape.v_head_dim,
        "qk_nope_head_dim": shape.qk_nope_head_dim,
        "vocab_size": model.vocab_size,
        "multiple_of": 256,
        "rms_norm_eps": model.rms_norm_eps,
        # as in config.json; the shipped training files name 100000 and 100001, which are plain text in V3
        "bos_token_id": role.ids.bos,
        "pad_token_id": role.ids.pad,
        "ignore_token_id": -100,
        "compute_dtype": "bfloat16",
        **_precision("float32"),
        "qkv_concat": False,
        "use_flash_attention": True,
        "offset": role.offset,
        "checkpoint_name_or_path": "",
        "theta": model.rope_theta,
    }


def _precision(dtype: str) -> Values:
    """Of norms, softmax, positions and router."""
    names = ("layernorm_compute_type", "softmax_compute_type", "rotary_dtype", "router_dense_type")
    return dict.fromkeys(names, dtype)


def _training(role: Role) -> Values:
    return {
        "n_kv_heads": role.model.num_key_value_heads,
        # without YaRN, as shipped: it is for sequences beyond the original length
        "max_position_embeddings": max(_own(role.model).rope_original_length, role.seq_length),
        "eos_token_id": role.ids.eos[0],
        "param_init_type": role.model.param_init_type,
        "use_past": False,
        "extend_method": "None",
        "return_extra_loss": False,
        "mtp_depth": 0,
        "mtp_loss_factor": 0.3,
    }


def _predicting(role: Role, sampling: Values) -> Values:
    model, shape = role.model, _own(role.model)
    return {
        **_precision(model.torch_dtype),
        "max_position_embeddings": model.max_position_embeddings,
        "eos_token_id": list(role.ids.eos),
        "param_init_type": model.torch_dtype,
        "use_past": True,
        "is_dynamic": True,
        "extend_method": "YARN",
        "scaling_factor": {
            "beta_fast": shape.rope_beta_fast,
            "beta_slow": shape.rope_beta_slow,
            "factor": shape.rope_factor,
            "mscale": shape.rope_mscale,
            "mscale_all_dim": shape.rope_mscale_all_dim,
            "original_max_position_embeddings": shape.rope_original_length,
        },
        **sampling,
        "ffn_concat": False,
        "auto_map": {
            "AutoConfig": "deepseek3_config.DeepseekV3Config",
            "AutoModel": "deepseek3.DeepseekV3ForCausalLM",
        },
    }


def _experts(model: ModelConfig, training: bool) -> Values:
    shape = _own(model)
    shared = {
        "expert_num": shape.n_routed_experts,
        "num_experts_chosen": shape.num_experts_per_tok,
        "routing_policy": "TopkRouterV2",
        "shared_expert_num": shape.n_shared_experts,
        "routed_scaling_factor": shape.routed_scaling_factor,
        "first_k_dense_replace": shape.first_k_dense_replace,
        "moe_intermediate_size": shape.moe_intermediate_size,
    }
    if not training:
        return shared | {"topk_group": shape.topk_group, "n_group": shape.n_group}
    return shared | {
        "expert_group_size": 8,
        "capacity_factor": 1.5,
        "aux_loss_factor": 0.05,
        "balance_via_topk_bias": True,
        "topk_bias_update_rate": 0,  # 0 and the next 0: rewards alone move the policy
        "aux_loss_factors": [0],
        "aux_loss_types": ["expert"],
        "z_loss_factor": 0.0,
        "use_fused_ops_topkrouter": True,
        "norm_topk_prob": shape.norm_topk_prob,
        "expert_model_parallel": 1,
        "use_gating_sigmoid": True,
        "enable_sdrop": True,
        "use_gmm": False,
    }


_END = "<｜end▁of▁sentence｜>"
_IDS = TokenIds(0, (1,), 1)
_ARCH = {"type": "DeepseekV3ForCausalLM", "auto_register": "deepseek3.DeepseekV3ForCausalLM"}
DEEPSEEK_V3 = Family(
    name="deepseek_v3",
    title="DeepSeek-V3",
    architecture="DeepseekV3ForCausalLM",
    model_type="deepseek_v3",
    ids={"base": _IDS, "instruct": _IDS},
    engines=frozenset({"mindrlhf"}),
    weights=None,
    count=count,
    section="deepseek_v3",
    own_rope=True,
    num_experts=lambda model: _own(model).n_routed_experts,
    stored_as_float=False,  # FP8
    network=Network(_ARCH, _shape, _training, _predicting, num_blocks=512),
    mindrlhf=Mindrlhf(
        main="examples/grpo/deepseekv3_grpo_tutorial/main.py",
        name="deepseek",
        model_name="deepseek",
        contracts=("e8a8fc1",),  # older ones call the trainer without the argument that it requires
        accuracy="accuracy_reward",
        special_tokens={"unk": "<unk>", "bos": "<｜begin▁of▁sentence｜>", "eos": _END, "pad": _END},
        experts=_experts,
        environment={
            "MS_DEV_RUNTIME_CONF": "multi_stream:true",
            "MS_DEV_HOST_BLOCKING_RUN": "1",
            "ENABLE_LAZY_INLINE_NO_PIPELINE": "1",
        },
        notes=(
            "DeepSeek-V3's published weights are FP8: mindformers' research/deepseek3/convert_weight.py makes"
            " bfloat16 ones; model.path is their directory, with config.json, tokenizer and an index",
            "DeepSeek-V3: what a card must hold is not estimated",
        ),
    ),
)
