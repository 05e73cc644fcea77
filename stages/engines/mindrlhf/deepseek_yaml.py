"""The three model files of a DeepSeek-V3, for examples/grpo/deepseekv3_grpo_tutorial.

Its own parallel_config and recompute_config are left out: mindrlhf takes grpo_config.yaml's.
Source: mindrlhf e8a8fc1, model_configs/deepseek_v3_config; mindformers,
research/deepseek3/deepseek3_config.py. Values that differ from the shipped files say why.
"""

from __future__ import annotations

from typing import Any

from stages.engines.mindrlhf.job import Job, Places
from stages.layout import RoleLayout
from stages.model_config import DeepseekV3Config

Values = dict[str, Any]


def deepseek_configs(job: Job, shape: DeepseekV3Config, places: Places) -> dict[str, Values]:
    """File name -> content."""
    return {
        "finetune.yaml": _training_role(job, shape, job.layout.train),
        "reference.yaml": _training_role(job, shape, job.layout.reference),
        "predict.yaml": _predict(job, shape, places),
    }


def _training_role(job: Job, shape: DeepseekV3Config, layout: RoleLayout) -> Values:
    model = _model(job, shape, layout, "float32") | {
        "n_kv_heads": job.model.num_key_value_heads,
        # without YaRN, as shipped: it is for sequences beyond the original length
        "max_position_embeddings": max(shape.rope_original_length, job.seq_length),
        "eos_token_id": job.token_ids().eos[0],
        "param_init_type": job.model.param_init_type,
        "use_past": False,
        "extend_method": "None",
        "return_extra_loss": False,
        "mtp_depth": 0,
        "mtp_loss_factor": 0.3,
    }
    experts = _experts(shape) | {
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
    return {"run_mode": "train", "model": {"model_config": model, "arch": _ARCH}, "moe_config": experts}


def _predict(job: Job, shape: DeepseekV3Config, places: Places) -> Values:
    rollout = job.rollout
    model = _model(job, shape, job.layout.generate, job.model.torch_dtype) | {
        "max_position_embeddings": job.model.max_position_embeddings,
        "eos_token_id": list(job.token_ids().eos),
        "param_init_type": job.model.torch_dtype,
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
        "block_size": job.engine.block_size,
        "num_blocks": 512,
        "max_decode_length": rollout.max_tokens,
        "min_decode_length": rollout.min_tokens,
        "repetition_penalty": rollout.repetition_penalty,
        "temperature": rollout.temperature,
        "top_k": rollout.top_k or 0,
        "top_p": 1.0 if rollout.top_p is None else rollout.top_p,
        "do_sample": True,
        "ffn_concat": False,
        "auto_map": {
            "AutoConfig": "deepseek3_config.DeepseekV3Config",
            "AutoModel": "deepseek3.DeepseekV3ForCausalLM",
        },
    }
    return {
        "run_mode": "predict",
        "load_ckpt_format": "safetensors",
        "model": {"model_config": model, "arch": _ARCH},
        "moe_config": _experts(shape) | {"topk_group": shape.topk_group, "n_group": shape.n_group},
        "processor": {
            "return_tensors": "ms",
            "tokenizer": {
                "type": "LlamaTokenizerFast",
                "unk_token": "<unk>",
                "bos_token": "<｜begin▁of▁sentence｜>",
                "eos_token": "<｜end▁of▁sentence｜>",
                "pad_token": "<｜end▁of▁sentence｜>",
                "vocab_file": str(places.tokenizer / "tokenizer.json"),
                "tokenizer_file": str(places.tokenizer / "tokenizer.json"),
            },
            "type": "LlamaProcessor",
        },
    }


_ARCH = {"type": "DeepseekV3ForCausalLM", "auto_register": "deepseek3.DeepseekV3ForCausalLM"}


def _model(job: Job, shape: DeepseekV3Config, layout: RoleLayout, precision: str) -> Values:
    """What all roles share; `precision` is that of norms, softmax, positions and router."""
    model, ids = job.model, job.token_ids()
    return {
        "type": "DeepseekV3Config",
        "auto_register": "deepseek3_config.DeepseekV3Config",
        "batch_size": 1,
        "seq_length": job.seq_length,
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
        "bos_token_id": ids.bos,
        "pad_token_id": ids.pad,
        "ignore_token_id": -100,
        "compute_dtype": "bfloat16",
        "layernorm_compute_type": precision,
        "softmax_compute_type": precision,
        "rotary_dtype": precision,
        "router_dense_type": precision,
        "qkv_concat": False,
        "use_flash_attention": True,
        "offset": list(layout.offset) or 0,
        "checkpoint_name_or_path": "",
        "theta": model.rope_theta,
    }


def _experts(shape: DeepseekV3Config) -> Values:
    return {
        "expert_num": shape.n_routed_experts,
        "num_experts_chosen": shape.num_experts_per_tok,
        "routing_policy": "TopkRouterV2",
        "shared_expert_num": shape.n_shared_experts,
        "routed_scaling_factor": shape.routed_scaling_factor,
        "first_k_dense_replace": shape.first_k_dense_replace,
        "moe_intermediate_size": shape.moe_intermediate_size,
    }
