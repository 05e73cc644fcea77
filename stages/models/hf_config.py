"""What a Hugging Face config.json says of a model, by the names of the configuration's model section."""

from collections.abc import Mapping
from typing import Any

from stages.models.family import Family, Values

NUMBERS = (
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "intermediate_size",
    "vocab_size",
)
SHAPE_KEYS = (*NUMBERS, "rope_theta", "rms_norm_eps", "tie_word_embeddings")
_SCALING = ("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings")


def described(config: Mapping[str, Any], family: Family) -> Values:
    """The keys of the model section that config.json settles; None where it lacks one.

    Source: transformers 4.57 and 5.12, configuration_utils.py: 5 writes rope_theta and rope_scaling as
    rope_parameters, and torch_dtype as dtype.
    """
    rotary = config.get("rope_parameters")
    rotary = rotary if isinstance(rotary, dict) else {}
    values: Values = {key: config.get(key, rotary.get(key)) for key in SHAPE_KEYS}
    values["tie_word_embeddings"] = values["tie_word_embeddings"] or False
    values["head_dim"] = None if family.own_attention else config.get("head_dim") or family.head_dim
    values["rope_scaling"] = None if family.own_attention else _scaling(config.get("rope_scaling") or rotary)
    if family.section is not None:
        values[family.section.name] = family.section.read(config)
    return values


def head_size(values: Mapping[str, Any]) -> Any:
    """Elements of a head that a section's plain values say; None where they are no numbers."""
    hidden, heads = values.get("hidden_size"), values.get("num_attention_heads")
    if values.get("head_dim") is None and type(hidden) is int and type(heads) is int and heads > 0:
        return hidden // heads
    return values.get("head_dim")


def _scaling(rotary: Any) -> Any:
    """Llama 3's as the section has it; of any other kind the kind, which fits no section."""
    if not isinstance(rotary, dict):
        return rotary
    kind = rotary.get("rope_type", rotary.get("type", "default"))
    if kind != "llama3":
        return None if kind == "default" else {"rope_type": kind}
    return {key: rotary.get(key) for key in _SCALING}
