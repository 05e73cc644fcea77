"""Which keys of a configuration a rendered value depends on: `dependencies` changes one after another."""

import copy
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from stages.base.errors import ConfigError
from stages.base.keys import flat

SECTIONS = ("model", "layout", "tokenize", "rollout", "reward", "train", "seed")
"""Sections that are rendered, besides the engine's."""
CHOICES = (
    "off", "mindformers", "constant", "linear", "cosine", "hf_safetensors", "ms_safetensors", "ckpt", "file",
    "qwen", "instruct", "float16", "dr_grpo", "drop", "truncate", "qwen_r1",
    "dapo", "sequence", "npu", "cpu", "sglang", "cispo", "sapo", "rloo", "k1", "gpg", "none", "tis",
    "qwen3_coder",
)  # fmt: skip
"""Values of keys that have choices; a key refuses those of other keys."""


def changed(value: Any) -> Iterator[Any]:
    """Yield other values of a key; reading the configuration refuses those of a wrong type."""
    if isinstance(value, bool):
        yield not value
    elif isinstance(value, int | float):
        yield from (value * 2, value + 1, value / 2, 0, None)
    elif isinstance(value, str):
        yield from (*CHOICES, f"{value}x")
    elif isinstance(value, list | tuple):
        yield from ([], [*value, *value], [*value, 1.0], [*value, "format"], [1, -1], ["format"])
    elif value is None:
        yield from (2, 0.5, "x", 4096, [3])


def dependencies(
    config: Mapping[str, Any],
    sections: Iterable[str],
    render: Callable[[Mapping[str, Any]], Mapping[str, Any]],
) -> dict[str, set[str]]:
    """Return for each rendered path the configuration keys whose change changes, adds or removes it.

    Args:
        config: plain configuration.
        sections: sections whose keys are changed.
        render: function that returns the rendered values by path.
    """
    before, result = render(config), defaultdict(set)
    for key, value in flat({name: config[name] for name in sections}).items():
        for replacement in changed(value):
            try:
                after = render(put(copy.deepcopy(dict(config)), key, replacement))
            except (ConfigError, ValueError, TypeError, KeyError, AssertionError, ArithmeticError):
                continue  # no value of this key
            for path in before | after:
                if before.get(path, "absent") != after.get(path, "absent"):
                    result[path].add(key)
    return dict(result)


def put(values: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    """Set a value by its dotted path in nested groups; return them."""
    *groups, last = path.split(".")
    section = values
    for group in groups:
        section = section.setdefault(group, {})
    section[last] = value
    return values
