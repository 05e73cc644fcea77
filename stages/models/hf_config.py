"""The model section as a Hugging Face config.json describes it."""

from collections.abc import Mapping
from typing import Any

from stages.models.family import ROPE, Family, Values

NUMBERS = (
    "hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "intermediate_size",
    "vocab_size",
)  # fmt: skip
SHAPE_KEYS = (*NUMBERS, "rope_theta", "rms_norm_eps", "tie_word_embeddings")


def described(config: Mapping[str, Any], family: Family) -> Values:
    """Return the keys of the model section that config.json settles; None where it has no value.

    Keys that the section cannot express are refused by config_keys.refused.

    Source: transformers 4.57 and 5.12, configuration_utils.py: 5 writes rope_theta and rope_scaling as
    rope_parameters, and torch_dtype as dtype.
    """
    rotary = config.get("rope_scaling") or config.get("rope_parameters")
    rotary = rotary if isinstance(rotary, dict) else {}
    values: Values = {key: config.get(key) for key in SHAPE_KEYS}
    if values["rope_theta"] is None:
        values["rope_theta"] = rotary.get("rope_theta")
    values["tie_word_embeddings"] = values["tie_word_embeddings"] or False
    if "num_key_value_heads" in config and values["num_key_value_heads"] is None:
        values["num_key_value_heads"] = values["num_attention_heads"]
    values["head_dim"] = None if family.custom_attention else config.get("head_dim") or family.head_dim
    values["rope_scaling"] = None if family.custom_attention else _scaling(rotary)
    values["sliding_window"] = family.window(config)
    if family.section is not None:
        values[family.name] = family.section(config)
    return values


def head_size(values: Mapping[str, Any]) -> Any:
    """Return the elements of a head from a section's plain values; None if they are not numbers."""
    hidden, heads = values.get("hidden_size"), values.get("num_attention_heads")
    if values.get("head_dim") is None and type(hidden) is int and type(heads) is int and heads > 0:
        return hidden // heads
    return values.get("head_dim")


def _scaling(rotary: Mapping[str, Any]) -> Values | None:
    """Return Llama 3's scaling as the model section has it; None for plain positions."""
    if rotary.get("rope_type", rotary.get("type", "default")) != "llama3":
        return None
    return {key: rotary.get(key) for key in ROPE["llama3"]}
