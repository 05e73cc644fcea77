"""Keys of a Hugging Face config.json: of the model section, without effect, with one value, and unknown ones.

config_keys.yaml has those of all families; each family lists its additional keys in its own file. Every other
key is refused, because its effect is not known.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from stages.base.errors import Problem, as_override
from stages.models.family import ROPE, Family

_ROPE_KEYS = ("rope_type", "type", "rope_theta", "partial_rotary_factor")
"""Keys of a group of rotary parameters, whatever its kind."""
_WRONG_CONFIG = "give the config.json of these weights"
_COPY = "in a copy of config.json"
Refusal = tuple[str, str, str]
"""Key, rule and remedy."""


@functools.cache
def keys_of_all() -> dict[str, Any]:
    """Return the groups of config_keys.yaml: read, harmless and fixed. It is read when first needed."""
    import yaml  # takes 20 ms, which a run with nothing to do does without

    groups: dict[str, Any] = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8"))
    return groups | {"harmless": {key for keys in groups["harmless"].values() for key in keys}}


def refused(config: Mapping[str, Any], family: Family, file: object) -> list[Problem]:
    """Return a problem for each key of a config.json that the networks of its family do not implement."""
    refusals = (*_identity(config, family), *_keys(config, family), *_rope(config, family))
    return [Problem(f"{file}: {key}", _shown(config, key), rule, remedy) for key, rule, remedy in refusals]


def _identity(config: Mapping[str, Any], family: Family) -> Iterator[Refusal]:
    """Check that both keys that identify the model name the same family."""
    if config.get("model_type") not in (None, family.model_type):
        yield "model_type", f"must be {family.model_type}, the type of {family.architecture}", _WRONG_CONFIG
    listed = config.get("architectures")
    if listed and not (isinstance(listed, list) and family.architecture in listed):
        yield "architectures", f"must name {family.architecture}", _WRONG_CONFIG


def _keys(config: Mapping[str, Any], family: Family) -> Iterator[Refusal]:
    """Check every key of the file."""
    harmless = keys_of_all()["harmless"] | family.harmless.keys()
    fixed, read = keys_of_all()["fixed"] | family.fixed(config), family.keys.union(keys_of_all()["read"])
    for key, value in config.items():
        if key in harmless:
            continue
        if key not in fixed and key not in read:
            rule = f"is not a known key of {family.title}, so its effect on the model is unknown"
            yield key, rule, f"remove it {_COPY} if the model's outputs do not depend on it"
        elif key in fixed and value not in fixed[key]:
            usual = as_override(fixed[key][0])
            rule = f"must be {usual}: {family.title} is implemented with this value only"
            yield key, rule, f"use a model with {key}={usual}"


def _rope(config: Mapping[str, Any], family: Family) -> Iterator[Refusal]:
    """Check the group of rotary parameters: rope_parameters in transformers 5, rope_scaling before."""
    groups = {key: config[key] for key in ("rope_scaling", "rope_parameters") if config.get(key)}
    for key, group in groups.items():
        if isinstance(group, dict):
            for name, rule, remedy in _rope_group(group, family, config.get("rope_theta")):
                yield f"{key}.{name}", rule, remedy
        else:
            yield key, "must be an object", _WRONG_CONFIG
    if len(groups) == 2 and groups["rope_scaling"] != groups["rope_parameters"]:
        rule = "differs from rope_scaling; releases of transformers disagree about which one counts"
        yield "rope_parameters", rule, f"keep one of them {_COPY}"


def _rope_group(group: Mapping[str, Any], family: Family, theta: Any) -> Iterator[Refusal]:
    """Check one group; `theta` is the rope_theta outside it."""
    name = "type" if "type" in group and "rope_type" not in group else "rope_type"
    kind = group.get(name, "default")
    if not isinstance(kind, str) or kind not in family.rope:
        rule = f"must be {' or '.join(family.rope)}: {family.title} is implemented with no other"
        yield name, rule, "use a model with such positions"
        return
    for key in sorted(group.keys() - {*_ROPE_KEYS, *family.rope[kind]}):
        yield key, f"is not a known key of rope_type={kind}", f"remove it {_COPY} if it has no effect"
    if group.get("partial_rotary_factor") not in keys_of_all()["fixed"]["partial_rotary_factor"]:
        yield "partial_rotary_factor", "must be 1", "use a model whose heads are rotated completely"
    inner = group.get("rope_theta")
    if inner is not None and theta is not None and inner != theta:
        rule = f"differs from rope_theta={theta}; releases of transformers disagree about which one counts"
        yield "rope_theta", rule, f"keep one of them {_COPY}"


def _shown(config: Any, path: str) -> Any:
    """Return the value at a path, short enough for a message."""
    for key in path.split("."):
        config = config.get(key) if isinstance(config, dict) else None
    text = str(config)
    return config if len(text) <= 80 else f"{text[:77]}..."


NUMBERS = (
    "hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "intermediate_size",
    "vocab_size",
)  # fmt: skip
SHAPE_KEYS = (*NUMBERS, "rope_theta", "rms_norm_eps", "tie_word_embeddings")
_DEFAULTS = {"rope_theta": 10000.0, "rms_norm_eps": 1e-6}
"""The same in every family."""


def described(config: Mapping[str, Any], family: Family) -> dict[str, Any]:
    """Return the keys of the model section that config.json settles; None where it has no value.

    transformers 5 writes rope_theta and rope_scaling as rope_parameters, and torch_dtype as dtype. A key that
    transformers gives a default may be missing, as rope_theta is in Llama 2's files.
    Source of the defaults: transformers 4.57 and 5.12, models/*/configuration_*.py.
    """
    rotary = config.get("rope_scaling") or config.get("rope_parameters")
    rotary = rotary if isinstance(rotary, dict) else {}
    values: dict[str, Any] = {key: config.get(key, _DEFAULTS.get(key)) for key in SHAPE_KEYS}
    if "rope_theta" in rotary and config.get("rope_theta") is None:
        values["rope_theta"] = rotary["rope_theta"]
    values["tie_word_embeddings"] = values["tie_word_embeddings"] or False
    if values["num_key_value_heads"] is None:
        default = None if "num_key_value_heads" in config else family.key_value_heads
        values["num_key_value_heads"] = default or values["num_attention_heads"]
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


def _scaling(rotary: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return Llama 3's scaling as the model section has it; None for plain positions."""
    if rotary.get("rope_type", rotary.get("type", "default")) != "llama3":
        return None
    return {key: rotary.get(key) for key in ROPE["llama3"]}
