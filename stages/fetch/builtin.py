"""A model with random weights from a seed, as a Hugging Face directory (without tokenizer)."""

import json
import zlib
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from stages.base.errors import InputError
from stages.models.config import ModelConfig
from stages.models.families import family_of, tensor_shapes, weights_of
from stages.weights.dtypes import CODES, Array, CastOverflowError, cast
from stages.weights.index import SINGLE_NAME
from stages.weights.outputs import OutputFile


def initial_value(name: str, shape: tuple[int, ...], seed: int, deviation: float) -> Array:
    """Return one float32 tensor: zeros for biases, ones for norms, else normal(0, deviation).

    Each tensor has its own random stream, so that adding layers does not change the others.
    """
    if name.endswith(".bias"):
        return np.zeros(shape, np.float32)
    if name.endswith("norm.weight"):
        return np.ones(shape, np.float32)
    stream = np.random.default_rng([seed, zlib.crc32(name.encode())])
    return stream.standard_normal(shape, dtype=np.float32) * np.float32(deviation)


def write_config(model: ModelConfig, ids: dict[str, Any], output: Path) -> None:
    """Write config.json and generation_config.json."""
    family = family_of(model)
    bos = ids["bos"] if model.bos_token_id is None else model.bos_token_id
    eos = list(model.eos_token_id or ids["eos"])
    pad = ids["pad"] if model.pad_token_id is None else model.pad_token_id
    config: dict[str, Any] = {
        "architectures": [family.architecture],
        "attention_dropout": 0.0,
        "bos_token_id": bos,
        "eos_token_id": eos[0],
        "hidden_act": "silu",
        "hidden_size": model.hidden_size,
        "initializer_range": model.initializer_range,
        "intermediate_size": model.intermediate_size,
        "max_position_embeddings": model.max_position_embeddings,
        "model_type": family.model_type,
        "num_attention_heads": model.num_attention_heads,
        "num_hidden_layers": model.num_hidden_layers,
        "num_key_value_heads": model.num_key_value_heads,
        "pad_token_id": pad,
        "rms_norm_eps": model.rms_norm_eps,
        "rope_theta": model.rope_theta,
        "tie_word_embeddings": model.tie_word_embeddings,
        "torch_dtype": model.torch_dtype,
        # the version in Qwen2.5's files; without one transformers 5 warns of a broken split
        "transformers_version": "4.43.1",
        "use_cache": True,
        "vocab_size": model.vocab_size,
        **family.hf_config(model),
    }
    if model.head_dim is not None:
        config["head_dim"] = model.head_dim
    if model.rope_scaling is not None:
        config["rope_scaling"] = {"rope_type": "llama3", **asdict(model.rope_scaling)}
    generation = {"bos_token_id": bos, "do_sample": False, "eos_token_id": eos, "pad_token_id": pad}
    for name, values in (
        ("config.json", dict(sorted(config.items()))),
        ("generation_config.json", generation),
    ):
        (output / name).write_text(json.dumps(values, indent=2) + "\n", encoding="utf-8")


def write_model(model: ModelConfig, ids: dict[str, Any], seed: int, output: Path) -> None:
    """Write config files and random weights in model.torch_dtype, one tensor in memory at a time.

    Raises:
        InputError: model.initializer_range gives numbers that are too large for model.torch_dtype.
    """
    write_config(model, ids, output)
    shapes, code = tensor_shapes(weights_of(model)), CODES[model.torch_dtype]
    listed = [(name, code, shape) for name, shape in shapes.items()]
    # transformers refuses a file whose metadata does not name a format
    with closing(OutputFile(output / SINGLE_NAME, listed, {"format": "pt"})) as file:
        for name, shape in shapes.items():
            values = initial_value(name, shape, seed, model.initializer_range)
            try:
                raw = cast(values.view(np.uint32), "F32", code)
            except CastOverflowError as error:
                rule = f"gives {name} a value of {error.value:g}, which {error.rule}"
                raise InputError(
                    "model.initializer_range", model.initializer_range, rule, "lower it"
                ) from error
            file.pwrite(raw.data, file.offset(name))
