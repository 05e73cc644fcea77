"""The finetune, reference and predict YAML files: one mindformers model config per role.

Every key of model_config reaches mindformers' LlamaConfig unchecked. tie_word_embeddings is written
always: LlamaConfig's default false would leave a tied model's head unloaded.
Source: mindformers 051d65f, mindformers/models/llama/llama_config.py; mindrlhf e8a8fc1,
model_configs/qwen_grpo.
"""

from __future__ import annotations

from typing import Any

from stages.engines.mindrlhf.deepseek_yaml import deepseek_configs
from stages.engines.mindrlhf.grpo_yaml import parallel_config
from stages.engines.mindrlhf.job import Job, Places, TokenIds
from stages.engines.mindrlhf.vocabulary import ENDOFTEXT_TEXT
from stages.layout import RoleLayout
from stages.model_config import ModelConfig
from stages.strategy.layouts import stages_of_layers

Values = dict[str, Any]


def model_configs(job: Job, places: Places) -> dict[str, Values]:
    """File name -> content."""
    if job.model.deepseek_v3 is not None:
        return deepseek_configs(job, job.model.deepseek_v3, places)
    return {
        "finetune.yaml": _training_role(job, job.layout.train, places),
        "reference.yaml": _training_role(job, job.layout.reference, places),
        "predict.yaml": _predict(job, places),
    }


def _training_role(job: Job, layout: RoleLayout, places: Places) -> Values:
    ids = job.token_ids()
    return {
        "run_mode": "finetune",
        "model": {
            "model_config": {
                **shape(job.model, layout, job.seq_length, ids),
                "eos_token_id": ids.eos[0],
                "param_init_type": job.model.param_init_type,
                "use_past": False,
                "extend_method": "None",
                "fine_grain_interleave": 1,
                "do_sample": False,
                "compute_in_2d": True,
            },
            "arch": {"type": "LlamaForCausalLM"},
        },
        "parallel_config": parallel_config(layout),
        "recompute_config": recompute_config(job.model, layout),
        "processor": _processor(job, places),
    }


def _predict(job: Job, places: Places) -> Values:
    rollout, ids, layout = job.rollout, job.token_ids(), job.layout.generate
    return {
        "run_mode": "predict",
        "model": {
            "model_config": {
                **shape(job.model, layout, job.seq_length, ids),
                "eos_token_id": list(ids.eos),
                "param_init_type": job.model.torch_dtype,
                "use_past": True,
                "is_dynamic": True,
                "block_size": job.engine.block_size,
                "num_blocks": 1024,
                "max_decode_length": rollout.max_tokens,
                "min_decode_length": rollout.min_tokens,
                "repetition_penalty": rollout.repetition_penalty,
                "temperature": rollout.temperature,
                "top_k": rollout.top_k or 0,
                "top_p": 1.0 if rollout.top_p is None else rollout.top_p,
                "do_sample": True,
            },
            "arch": {"type": "LlamaForCausalLM"},
        },
        "parallel_config": parallel_config(layout),
        "recompute_config": recompute_config(job.model, layout),
        "processor": _processor(job, places),
    }


def shape(model: ModelConfig, layout: RoleLayout, seq_length: int, ids: TokenIds) -> Values:
    """What training and generation share of a Qwen2.5's LlamaConfig."""
    return {
        "type": "LlamaConfig",
        "batch_size": 1,
        "seq_length": seq_length,
        "hidden_size": model.hidden_size,
        "num_layers": model.num_hidden_layers,
        "num_heads": model.num_attention_heads,
        "n_kv_heads": model.num_key_value_heads,
        "vocab_size": model.vocab_size,
        "intermediate_size": model.intermediate_size,
        "max_position_embedding": model.max_position_embeddings,
        "qkv_has_bias": True,
        "qkv_concat": model.qkv_concat,
        "rms_norm_eps": model.rms_norm_eps,
        "theta": model.rope_theta,
        "tie_word_embeddings": model.tie_word_embeddings,
        "emb_dropout_prob": 0.0,
        "bos_token_id": ids.bos,
        "pad_token_id": ids.pad,
        "compute_dtype": "bfloat16",
        "layernorm_compute_type": "float32",
        "softmax_compute_type": "float32",
        "rotary_dtype": "float32",
        "use_flash_attention": True,
        "offset": list(layout.offset) or 0,
        "checkpoint_name_or_path": "",
    }


def recompute_config(model: ModelConfig, layout: RoleLayout) -> Values:
    """Layers whose activations are computed again: one number per pipeline stage, or a plain yes or no."""
    stages = stages_of_layers(model, layout)
    per_stage = [stages.count(stage) for stage in range(layout.pipeline_stage)]
    several = layout.pipeline_stage > 1

    def layers(wanted: bool) -> bool | list[int]:
        return per_stage if wanted and several else wanted

    return {
        "recompute": layers(layout.recompute),
        "select_recompute": layers(layout.select_recompute),
        "parallel_optimizer_comm_recompute": False,
        "mp_comm_recompute": True,
        "recompute_slice_activation": False,
    }


def _processor(job: Job, places: Places) -> Values:
    if job.hands_tokenizer_over:
        file, names = str(places.tokenizer / "tokenizer.json"), ("unk", "bos", "eos", "pad")
        return {
            "return_tensors": "ms",
            "tokenizer": {
                "type": "LlamaTokenizerFast",
                # the end token is what mindrlhf pads packed samples with (pack_grouped_data)
                **{f"{name}_token": ENDOFTEXT_TEXT for name in names},
                "vocab_file": file,
                "tokenizer_file": file,
            },
            "type": "LlamaProcessor",
        }
    return {
        "return_tensors": "ms",
        "tokenizer": {
            "type": "Qwen2Tokenizer",
            "model_max_length": job.max_model_len,
            "vocab_file": str(places.tokenizer / "vocab.json"),
            "merges_file": str(places.tokenizer / "merges.txt"),
            "unk_token": "<|endoftext|>",
            "pad_token": "<|endoftext|>",
            "eos_token": "<|im_end|>" if job.model.variant == "instruct" else "<|endoftext|>",
        },
        "type": "Qwen2Processor",
    }
