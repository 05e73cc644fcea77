"""Random Hugging Face checkpoints for tests, written by the safetensors library (not by ours)."""

import functools
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import safetensors

from pipeline.config.load import load
from stages.base.layout import RoleLayout
from stages.fetch.builtin import write_config
from stages.models.config import ModelConfig
from stages.sections import Sections
from stages.weights.split import split_directory
from stages.weights.strategy.stage import write_strategy

NUMPY_BITS = {"float32": np.uint32, "bfloat16": np.uint16, "float16": np.uint16}


def make_model(**changes) -> ModelConfig:
    values = {
        "name": "test", "variant": "base", "hidden_size": 32, "num_hidden_layers": 4,
        "num_attention_heads": 8, "num_key_value_heads": 4, "intermediate_size": 48, "vocab_size": 96,
        "max_position_embeddings": 64, "rope_theta": 1e4, "initializer_range": 0.02,
        "tie_word_embeddings": False, "torch_dtype": "bfloat16", "param_init_type": "bfloat16",
    }  # fmt: skip
    return replace(tiny().model, **(values | changes))


def make_layout(**changes) -> RoleLayout:
    return replace(tiny().layout.train, **changes)


@functools.cache
def tiny() -> Sections:
    """The default configuration on one card."""
    return load(("layout=dp1_mp1_pp1",))


def hf_shapes(model: ModelConfig) -> dict[str, tuple[int, ...]]:
    """Written down from transformers' Qwen2, independently of the code under test."""
    hidden, inner = model.hidden_size, model.intermediate_size
    kv = hidden // model.num_attention_heads * model.num_key_value_heads
    shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (model.vocab_size, hidden)}
    for i in range(model.num_hidden_layers):
        layer = f"model.layers.{i}"
        shapes |= {
            f"{layer}.self_attn.q_proj.weight": (hidden, hidden), f"{layer}.self_attn.q_proj.bias": (hidden,),
            f"{layer}.self_attn.k_proj.weight": (kv, hidden), f"{layer}.self_attn.k_proj.bias": (kv,),
            f"{layer}.self_attn.v_proj.weight": (kv, hidden), f"{layer}.self_attn.v_proj.bias": (kv,),
            f"{layer}.self_attn.o_proj.weight": (hidden, hidden),
            f"{layer}.mlp.gate_proj.weight": (inner, hidden), f"{layer}.mlp.up_proj.weight": (inner, hidden),
            f"{layer}.mlp.down_proj.weight": (hidden, inner),
            f"{layer}.input_layernorm.weight": (hidden,),
            f"{layer}.post_attention_layernorm.weight": (hidden,),
        }  # fmt: skip
    shapes["model.norm.weight"] = (hidden,)
    if not model.tie_word_embeddings:
        shapes["lm_head.weight"] = (model.vocab_size, hidden)
    return shapes


def random_bits(shapes: dict[str, tuple[int, ...]], dtype: str, seed: int = 0) -> dict[str, np.ndarray]:
    """Elements as unsigned integers; values are ordinary numbers around zero."""
    generator = np.random.default_rng(seed)
    result = {}
    for name, shape in shapes.items():
        values = generator.standard_normal(shape, dtype=np.float32)
        if dtype == "bfloat16":
            result[name] = (values.view(np.uint32) >> 16).astype(np.uint16)
        else:
            result[name] = values.astype(dtype).view(NUMPY_BITS[dtype])
    return result


def write_safetensors(
    file: Path, bits: dict[str, np.ndarray], dtype: str, metadata: dict[str, str] | None = None
) -> None:
    entries = {
        name: {"dtype": dtype, "shape": list(item.shape), "data": item.tobytes()}
        for name, item in bits.items()
    }
    file.parent.mkdir(parents=True, exist_ok=True)
    safetensors.serialize_file(entries, str(file), metadata or {"format": "pt"})


def read_bits(file: Path) -> dict[str, np.ndarray]:
    """Read with the safetensors library; elements as unsigned integers of their width."""
    width = {"F32": np.uint32, "BF16": np.uint16, "F16": np.uint16, "I64": np.uint64, "I32": np.uint32}
    return {
        name: np.frombuffer(bytes(item["data"]), width[item["dtype"]]).reshape(item["shape"])
        for name, item in safetensors.deserialize(file.read_bytes())
    }


def write_hf(directory: Path, model: ModelConfig, shards: int = 1, seed: int = 0) -> dict[str, np.ndarray]:
    """A Hugging Face directory; returns its tensors' bits."""
    bits = random_bits(hf_shapes(model), model.torch_dtype, seed)
    directory.mkdir(parents=True, exist_ok=True)
    write_config(model, {"bos": None, "eos": [1], "pad": 0}, directory)
    (directory / "tokenizer.json").write_text("{}")
    if shards == 1:
        write_safetensors(directory / "model.safetensors", bits, model.torch_dtype)
        return bits
    names = list(bits)
    weight_map = {}
    for shard in range(shards):
        file = f"model-{shard + 1:05d}-of-{shards:05d}.safetensors"
        chosen = names[shard * len(names) // shards : (shard + 1) * len(names) // shards]
        write_safetensors(directory / file, {name: bits[name] for name in chosen}, model.torch_dtype)
        weight_map |= dict.fromkeys(chosen, file)
    index = {"metadata": {"total_size": sum(item.nbytes for item in bits.values())}, "weight_map": weight_map}
    (directory / "model.safetensors.index.json").write_text(json.dumps(index))
    return bits


def write_ranks_of(root: Path, model: ModelConfig, **layout) -> dict[str, np.ndarray]:
    """Write root/hf, root/strategy and root/ranks of a random model; returns the bits of root/hf."""
    bits = write_hf(root / "hf", model)
    write_strategy(model, make_layout(**layout), root / "strategy")
    split_directory(root / "hf", root / "strategy", root / "ranks")
    return bits


def read_directory(directory: Path) -> dict[str, np.ndarray]:
    """The tensors of all safetensors files of a directory, as read_bits."""
    return {name: bits for file in directory.glob("*.safetensors") for name, bits in read_bits(file).items()}


def assert_same(actual: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> None:
    assert actual.keys() == expected.keys()
    for name, array in expected.items():
        assert actual[name].dtype == array.dtype, name
        np.testing.assert_array_equal(actual[name], array, err_msg=name)
