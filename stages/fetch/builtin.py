"""A Qwen2 model with random weights from a seed, as a Hugging Face directory (without tokenizer)."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from stages.fetch.config import SINGLE_WEIGHTS
from stages.model_config import Dtype, ModelConfig

Shape = tuple[int, ...]
SAFETENSORS_DTYPE: dict[Dtype, tuple[str, int]] = {"float32": ("F32", 4), "bfloat16": ("BF16", 2), "float16": ("F16", 2)}


def parameter_shapes(model: ModelConfig) -> Iterator[tuple[str, Shape]]:
    """Name and shape of every tensor of transformers' Qwen2ForCausalLM, in its order."""
    hidden, kv_hidden = model.hidden_size, model.num_key_value_heads * model.head_dim
    yield "model.embed_tokens.weight", (model.vocab_size, hidden)
    for layer in range(model.num_hidden_layers):
        prefix = f"model.layers.{layer}"
        for name, rows in (("q_proj", hidden), ("k_proj", kv_hidden), ("v_proj", kv_hidden)):
            yield f"{prefix}.self_attn.{name}.weight", (rows, hidden)
            yield f"{prefix}.self_attn.{name}.bias", (rows,)
        yield f"{prefix}.self_attn.o_proj.weight", (hidden, hidden)
        yield f"{prefix}.mlp.gate_proj.weight", (model.intermediate_size, hidden)
        yield f"{prefix}.mlp.up_proj.weight", (model.intermediate_size, hidden)
        yield f"{prefix}.mlp.down_proj.weight", (hidden, model.intermediate_size)
        yield f"{prefix}.input_layernorm.weight", (hidden,)
        yield f"{prefix}.post_attention_layernorm.weight", (hidden,)
    yield "model.norm.weight", (hidden,)
    if not model.tie_word_embeddings:
        yield "lm_head.weight", (model.vocab_size, hidden)


def initial_value(name: str, shape: Shape, seed: int, deviation: float) -> np.ndarray:
    """One tensor, float32: zeros for biases, ones for norms, else normal(0, deviation).

    Each tensor has a stream of its own, so that adding layers leaves the others as they were.
    """
    if name.endswith(".bias"):
        return np.zeros(shape, np.float32)
    if name.endswith("norm.weight"):
        return np.ones(shape, np.float32)
    stream = np.random.default_rng([seed, zlib.crc32(name.encode())])
    return stream.standard_normal(shape, dtype=np.float32) * np.float32(deviation)


def write_weights(model: ModelConfig, seed: int, path: Path) -> None:
    """Write all tensors in model.torch_dtype into one safetensors file, one tensor in memory at a time.

    Source: the file format's specification in huggingface/safetensors, README.md ("Format").
    """
    tag, size = SAFETENSORS_DTYPE[model.torch_dtype]
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    start = 0
    for name, shape in parameter_shapes(model):
        end = start + size * int(np.prod(shape))
        header[name] = {"dtype": tag, "shape": shape, "data_offsets": [start, end]}
        start = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for name, shape in parameter_shapes(model):
            values = initial_value(name, shape, seed, model.initializer_range)
            file.write(_encode(values, model.torch_dtype).data)


def _encode(values: np.ndarray, dtype: Dtype) -> np.ndarray:
    """float32 values in the storage type; bfloat16 as its bits (uint16), rounded to nearest even."""
    if dtype == "float32":
        return values
    if dtype == "float16":
        return values.astype(np.float16)
    bits = values.view(np.uint32)
    return ((bits + np.uint32(0x7FFF) + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def write_config(model: ModelConfig, ids: dict[str, Any], output: Path) -> None:
    """Write config.json and generation_config.json.

    Args:
        model: the shape.
        ids: bos, eos (list) and pad; the model's explicit ids win.
        output: an existing directory.
    """
    bos = ids["bos"] if model.bos_token_id is None else model.bos_token_id
    eos = list(model.eos_token_id or ids["eos"])
    pad = ids["pad"] if model.pad_token_id is None else model.pad_token_id
    config = {
        "architectures": ["Qwen2ForCausalLM"],
        "attention_dropout": 0.0,
        "bos_token_id": bos,
        "eos_token_id": eos[0],
        "hidden_act": "silu",
        "hidden_size": model.hidden_size,
        "initializer_range": model.initializer_range,
        "intermediate_size": model.intermediate_size,
        "max_position_embeddings": model.max_position_embeddings,
        "max_window_layers": model.num_hidden_layers,
        "model_type": "qwen2",
        "num_attention_heads": model.num_attention_heads,
        "num_hidden_layers": model.num_hidden_layers,
        "num_key_value_heads": model.num_key_value_heads,
        "pad_token_id": pad,
        "rms_norm_eps": model.rms_norm_eps,
        "rope_theta": model.rope_theta,
        "sliding_window": None,
        "tie_word_embeddings": model.tie_word_embeddings,
        "torch_dtype": model.torch_dtype,
        "use_cache": True,
        "use_sliding_window": False,
        "vocab_size": model.vocab_size,
    }
    generation = {"bos_token_id": bos, "do_sample": False, "eos_token_id": eos, "pad_token_id": pad}
    for name, values in (("config.json", config), ("generation_config.json", generation)):
        (output / name).write_text(json.dumps(values, indent=2) + "\n", encoding="utf-8")


def write_model(model: ModelConfig, ids: dict[str, Any], seed: int, output: Path) -> None:
    """Write config files and random weights into `output`."""
    write_config(model, ids, output)
    write_weights(model, seed, output / SINGLE_WEIGHTS)
