"""Keys of a Hugging Face config.json: those without effect here, those with one accepted value, unknown ones.

Keys that the model section reads are in hf_config.py, and each family lists its additional keys in its own
file. Every other key is refused, because its effect is not known.

Source: transformers 4.57 and 5.12, configuration_utils.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from stages.base.errors import Problem, as_override

if TYPE_CHECKING:
    from stages.models.family import Family

READ = frozenset(
    {
        "architectures", "model_type", "hidden_size", "num_hidden_layers", "num_attention_heads",
        "num_key_value_heads", "intermediate_size", "vocab_size", "rope_theta", "rms_norm_eps",
        "tie_word_embeddings", "rope_scaling", "rope_parameters", "max_position_embeddings",
        "initializer_range", "torch_dtype", "dtype", "bos_token_id", "eos_token_id", "pad_token_id",
    }
)  # fmt: skip
"""Keys of every family that the model section or the tokenizer reads."""
_REASONS = {
    "notes of the program that wrote the file": (
        "transformers_version", "_name_or_path", "name_or_path", "_commit_hash", "unsloth_fixed",
        "unsloth_version", "tokenizer_class",
    ),
    "names or sizes of a classification head, which a causal model does not have": (
        "id2label", "label2id", "num_labels", "problem_type", "finetuning_task", "task_specific_params",
    ),
    "selects what transformers returns, not what it computes": (
        "output_attentions", "output_hidden_states", "return_dict", "return_dict_in_generate",
        "output_scores",
    ),
    "selects an implementation of the same mathematics": (
        "use_cache", "chunk_size_feed_forward", "torchscript", "tf_legacy_loss", "use_bfloat16",
        "attn_implementation", "_attn_implementation", "_attn_implementation_internal",
        "_attn_implementation_autoset", "experts_implementation", "_experts_implementation",
        "_experts_implementation_internal",
    ),
    "a default of generate(); the section rollout configures sampling": (
        "max_length", "min_length", "do_sample", "early_stopping", "num_beams", "num_beam_groups",
        "diversity_penalty", "temperature", "top_k", "top_p", "typical_p", "repetition_penalty",
        "length_penalty", "no_repeat_ngram_size", "encoder_no_repeat_ngram_size", "num_return_sequences",
        "remove_invalid_values", "epsilon_cutoff", "eta_cutoff", "encoder_repetition_penalty",
        "num_assistant_tokens", "num_assistant_tokens_schedule", "assistant_confidence_threshold",
        "assistant_lookbehind", "target_lookbehind",
    ),
}  # fmt: skip
HARMLESS: Mapping[str, str] = {key: reason for reason, keys in _REASONS.items() for key in keys}
"""Keys of every family that change no result of training -> the reason."""
FIXED: Mapping[str, Sequence[Any]] = {
    "hidden_act": ("silu", "swish"),
    "attention_dropout": (0.0, None),
    "is_encoder_decoder": (False,),
    "is_decoder": (False,),
    "add_cross_attention": (False,),
    "cross_attention_hidden_size": (None,),
    "tie_encoder_decoder": (False,),
    "decoder_start_token_id": (None,),
    "sep_token_id": (None,),
    "prefix": (None,),
    "pruned_heads": ({}, None),
    "partial_rotary_factor": (1.0, None),
    "quantization_config": (None,),
    "bad_words_ids": (None,),
    "forced_bos_token_id": (None,),
    "forced_eos_token_id": (None,),
    "suppress_tokens": (None,),
    "begin_suppress_tokens": (None,),
    "exponential_decay_length_penalty": (None,),
}
"""Keys of every family -> the values that the networks implement, the usual one first."""
_ROPE_KEYS = ("rope_type", "type", "rope_theta", "partial_rotary_factor")
"""Keys of a group of rotary parameters, whatever its kind."""
_WRONG_CONFIG = "give the config.json of these weights"
_COPY = "in a copy of config.json"
Refusal = tuple[str, str, str]
"""Key, rule and remedy."""


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
    harmless = {**HARMLESS, **family.harmless}
    fixed = {**FIXED, **family.fixed(config)}
    for key, value in config.items():
        if key in harmless:
            continue
        if key not in fixed and key not in READ | family.keys:
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
    if group.get("partial_rotary_factor") not in FIXED["partial_rotary_factor"]:
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
