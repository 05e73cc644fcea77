"""Strategies for configurations with changed keys, from the types and bounds of the dataclasses."""

from __future__ import annotations

import copy
import dataclasses
import functools
import itertools
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import pytest
from annotated_types import Ge, Gt, Le, Lt
from hypothesis import strategies as st

from pipeline.config.load import load
from pipeline.config.sections import Config
from pipeline.errors import ConfigError, Problem
from pipeline.plan.graph import Plan, plan
from stages.base.files import file_digest
from stages.base.identity import field_types
from stages.base.reader import read

FOREIGN = {
    "store", "url", "path", "test_path", "tokenizer_path", "hub", "files", "endpoint", "cache_dir",
    "resume_from", "home", "python", "container", "env_scripts", "env", "hosts", "ssh",
    "sbatch", "master_addr", "mindrlhf_home", "mindformers_home", "msadapter_home", "mindspeed_rl_home",
    "convert_python", "megatron_home", "mindspeed_home", "ray_address", "upstream",
}  # fmt: skip
"""Keys that name files, machines and addresses, which other tests cover."""
MINDSPEED_RL = (
    "engine=mindspeed_rl", "layout=dp2_mp2_pp2", "dataset=gsm8k",
    f"dataset.path={Path(__file__).parents[1] / 'data/gsm8k'}", "model.max_position_embeddings=8192",
)  # fmt: skip
"""A configuration that needs no file."""
TEXTS = ("", "x", "Answer: ", "ü\n")


@dataclasses.dataclass(frozen=True)
class Leaf:
    """One key."""

    path: tuple[str, ...]
    hint: Any
    value: Any

    def __str__(self) -> str:
        return ".".join(self.path)


def leaves(values: Mapping[str, Any], cls: type = Config, path: tuple[str, ...] = ()) -> Iterator[Leaf]:
    """Yield every key of plain `values` of `cls` that does not depend on the machine."""
    for name, hint in field_types(cls).items():
        if name in FOREIGN or (path == () and name == "launcher"):
            continue
        bare = typing.get_args(hint)[0] if typing.get_origin(hint) is Annotated else hint
        nested = [item for item in (bare, *typing.get_args(bare)) if dataclasses.is_dataclass(item)]
        below = values[name]
        if nested and isinstance(below, Mapping):
            (fits,) = (item for item in nested if set(below) == set(field_types(item)))
            yield from leaves(below, fits, (*path, name))
        elif not nested:
            yield Leaf((*path, name), hint, below)


def values_of(hint: Any, near: Any) -> st.SearchStrategy[Any]:
    """Return values of a key's type: choices, numbers near `near`, zero or a bound, and lists of these."""
    numbers: list[Any] = [0, 1, 2, 3, 4, 7, 8, 0.0, 1e-6, 0.25, 0.5, 1.5]
    if isinstance(near, (int, float)):
        numbers += [near, near - 1, near + 1, near * 2, near // 2, near / 2]
    simple = [None, False, True, *TEXTS, *_constants(hint), *numbers]
    candidates = [*simple, [], *([value] for value in simple), *map(list, itertools.pairwise(simple))]
    key = dataclasses.make_dataclass("Key", [("key", hint)])
    return st.sampled_from([value for value in candidates if _is_accepted(key, value)] or [near])


def _constants(hint: Any) -> Iterator[Any]:
    """Yield the choices and bounds in a type."""
    for item in typing.get_args(hint):
        if isinstance(item, (str, int, float)):
            yield item
        elif isinstance(item, (Ge, Gt, Le, Lt)):
            yield from dataclasses.astuple(item)
        else:
            yield from _constants(item)


def _is_accepted(cls: type, value: Any) -> bool:
    if isinstance(value, (int, float)) and abs(value) >= 10_000:
        return False
    try:
        read(cls, {"key": value})
    except ConfigError:
        return False
    return True


def changed(base: Mapping[str, Any], most: int = 6) -> st.SearchStrategy[dict[str, Any]]:
    """Return copies of `base` with some keys changed, before nulls are derived."""
    keys = sorted(leaves(base), key=str)

    @st.composite
    def some(draw: st.DrawFn) -> dict[str, Any]:
        chosen = draw(st.lists(st.sampled_from(keys), min_size=1, max_size=most, unique_by=str))
        values: dict[str, Any] = copy.deepcopy(dict(base))
        for leaf in chosen:
            *groups, name = leaf.path
            section = functools.reduce(lambda section, group: section[group], groups, values)
            section[name] = draw(values_of(leaf.hint, leaf.value), label=str(leaf))
        return values

    return some()


def planned(*overrides: str) -> Plan:
    """Return the plan of overrides."""
    return plan(load(overrides), file_digest)


def problem_of(overrides: Sequence[str], function: Callable[[Sequence[str]], object] = load) -> Problem:
    """Return the only problem for which overrides are refused."""
    with pytest.raises(ConfigError) as refused:
        function(overrides)
    (problem,) = refused.value.problems
    return problem
