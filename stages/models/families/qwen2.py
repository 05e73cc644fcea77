"""Qwen2 and Qwen2.5.

Source: transformers 4.57, models/qwen2/modeling_qwen2.py; mindformers 1.6.0, research/qwen2_5;
Ascend/MindSpeed-RL 05a90d7, configs/model.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

from stages.models.decoder import LLAMA as NAMES
from stages.models.decoder import weights
from stages.models.family import Converter, Family, Mindrlhf, Network, NetworkInputs, TokenIds, Values
from stages.models.shape import ModelFields

ENDOFTEXT, IM_END = 151643, 151645
"""Padding and beginning id, and the end of a chat turn (tokenizer_config.json)."""
IDS = {
    "base": TokenIds(ENDOFTEXT, (ENDOFTEXT,), ENDOFTEXT),
    "instruct": TokenIds(ENDOFTEXT, (IM_END, ENDOFTEXT), ENDOFTEXT),
}


FULL, SLIDING = "full_attention", "sliding_attention"
WINDOW_KEYS = frozenset({"use_sliding_window", "sliding_window", "max_window_layers", "layer_types"})


def sliding_window(model: ModelFields) -> Values:
    """Return the keys of config.json about attention windows."""
    return {"max_window_layers": model.num_hidden_layers, "sliding_window": None, "use_sliding_window": False}


def window(config: Mapping[str, Any]) -> Any:
    """Return the window of the layers that have one; None if every layer attends to all earlier tokens.

    Source: transformers 4.57 and 5.12, models/qwen2/configuration_qwen2.py.
    """
    if not config.get("use_sliding_window"):
        return None
    layers, first = config.get("layer_types"), config.get("max_window_layers", 28)
    count = config.get("num_hidden_layers")
    if isinstance(layers, list):
        full = SLIDING not in layers
    else:
        full = type(first) is int and type(count) is int and first >= count
    return None if full else config.get("sliding_window", 4096)


def attention_values(config: Mapping[str, Any]) -> Mapping[str, Sequence[Any]]:
    """Return the accepted values of keys about attention."""
    layers, count = config.get("layer_types"), config.get("num_hidden_layers")
    kinds = {FULL, SLIDING} if window(config) is not None else {FULL}
    known = isinstance(layers, list) and len(layers) == count and all(layer in kinds for layer in layers)
    return {
        "use_sliding_window": (False, True),
        "layer_types": (None, *([layers] if known else [])),
        "use_mrope": (False,),
    }


def megatron(model: ModelFields) -> Values:
    """Return a section of MindSpeed-RL's configs/model."""
    return {
        "use_mcore_models": True,
        "num_layers": model.num_hidden_layers,
        "hidden_size": model.hidden_size,
        "ffn_hidden_size": model.intermediate_size,
        "num_attention_heads": model.num_attention_heads,
        "rotary_base": int(model.rope_theta),
        "max_position_embeddings": model.max_position_embeddings,
        "make_vocab_size_divisible_by": 1,
        "padded_vocab_size": model.vocab_size,
        "untie_embeddings_and_output_weights": not model.tie_word_embeddings,
        "add_qkv_bias": True,
        "disable_bias_linear": True,
        "group_query_attention": True,
        "num_query_groups": model.num_key_value_heads,
        "position_embedding_type": "rope",
        "norm_epsilon": model.rms_norm_eps,
        "normalization": "RMSNorm",
        "swiglu": True,
        "attention_softmax_in_fp32": True,
    }


def _network(inputs: NetworkInputs) -> Values:
    """Return the keys of model_config for every role.

    Source: mindformers 1.6.0, models/llama/llama_config.py; mindrlhf e8a8fc1, model_configs/qwen_grpo.
    """
    model = inputs.model
    return {
        "type": "LlamaConfig",
        "batch_size": 1,
        "seq_length": inputs.seq_length,
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
        # the default false would leave a tied model's head unloaded
        "tie_word_embeddings": model.tie_word_embeddings,
        "emb_dropout_prob": 0.0,
        "bos_token_id": inputs.ids.bos,
        "pad_token_id": inputs.ids.pad,
        "compute_dtype": "bfloat16",
        "layernorm_compute_type": "float32",
        "softmax_compute_type": "float32",
        "rotary_dtype": "float32",
        "use_flash_attention": True,
        "offset": inputs.offset,
        "checkpoint_name_or_path": "",
    }


def _training(inputs: NetworkInputs) -> Values:
    return _network(inputs) | {
        "eos_token_id": inputs.ids.eos[0],
        "param_init_type": inputs.model.param_init_type,
        "use_past": False,
        "extend_method": "None",
        "fine_grain_interleave": 1,
    }


def _predicting(inputs: NetworkInputs) -> Values:
    return _network(inputs) | {
        "eos_token_id": list(inputs.ids.eos),
        "param_init_type": inputs.model.torch_dtype,
        "use_past": True,
        "is_dynamic": True,
    }


LLAMA = Network(
    arch={"type": "LlamaForCausalLM"},
    config=("mindformers/models/llama/llama_config.py", "LlamaConfig"),
    training=_training,
    predicting=_predicting,
    num_blocks=1024,
)
TUTORIAL = Mindrlhf(
    main="examples/grpo/qwen_grpo_tutorial/main.py",
    name="qwen",
    model_name="qwen2.5",
    masks_samples=True,
    constant_ids=True,
)
FAMILY = Family(
    name="qwen2",
    title="Qwen2",
    architecture="Qwen2ForCausalLM",
    model_type="qwen2",
    key_value_heads=32,
    ids=IDS,
    weights=functools.partial(weights, names=NAMES, bias=True),
    hf_config=sliding_window,
    keys=frozenset({"head_dim"}) | WINDOW_KEYS,
    fixed=attention_values,
    window=window,
    network=LLAMA,
    mindrlhf=TUTORIAL,
    megatron=megatron,
    converter=Converter("llama2", ("--add-qkv-bias",)),
)
