"""Strategies for configurations with changed keys, from the types and bounds of the dataclasses."""

from __future__ import annotations

import collections.abc
import copy
import dataclasses
import functools
import types
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from annotated_types import Ge, Gt, Le, Lt
from hypothesis import strategies as st

from pipeline.config.load import load
from pipeline.config.sections import Config
from pipeline.errors import ConfigError, Problem
from stages.base.identity import AbsentWhen, NotInIdentity, field_types

FOREIGN = {
    "store", "url", "path", "test_path", "tokenizer_path", "hub", "files", "endpoint", "cache_dir",
    "resume_from", "home", "python", "container", "env_scripts", "env", "hosts", "ssh",
    "sbatch", "master_addr", "mindrlhf_home", "mindformers_home", "msadapter_home", "mindspeed_rl_home",
    "mindspeed_llm_home", "convert_python", "megatron_home", "mindspeed_home", "ray_address", "upstream",
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
    for name, hint in types_of(cls).items():
        if name in FOREIGN or (path == () and name == "launcher"):
            continue
        below = values[name]
        options = (hint, *typing.get_args(hint))
        nested = [item for item in options if isinstance(item, type) and dataclasses.is_dataclass(item)]
        if nested and isinstance(below, Mapping):
            fits = [
                item for item in nested if set(below) == {field.name for field in dataclasses.fields(item)}
            ]
            yield from leaves(below, fits[0], (*path, name))
        elif not nested:
            yield Leaf((*path, name), hint, below)


def types_of(cls: type) -> dict[str, Any]:
    """Return the types of a dataclass's fields with their bounds, without markers."""
    result = {}
    for name, hint in field_types(cls).items():
        marked = typing.get_origin(hint) is Annotated and isinstance(
            hint.__metadata__[0], NotInIdentity | AbsentWhen
        )
        result[name] = typing.get_args(hint)[0] if marked else hint
    return result


def values_of(hint: Any, near: Any) -> st.SearchStrategy[Any]:
    """Return values of a key's type within its bounds, mostly near a value or its bounds."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is Annotated:
        return st.sampled_from(list(_bounded(arguments[0], arguments[1:], near)) or [near])
    if origin in (types.UnionType, typing.Union):
        inner = [item for item in arguments if item is not type(None)]
        return st.one_of(st.none(), *(values_of(item, near) for item in inner))
    if origin is Literal:
        return st.sampled_from(arguments)
    if origin is tuple:
        items = near if isinstance(near, (list, tuple)) and near else [None]
        return st.lists(values_of(arguments[0], items[0]), max_size=3)
    if origin is collections.abc.Mapping:
        return st.just(near)
    if hint is bool:
        return st.booleans()
    if hint is str:
        return st.sampled_from(TEXTS)
    return st.sampled_from(list(_bounded(hint, (), near)))


def _bounded(hint: Any, bounds: tuple[Any, ...], near: Any) -> Iterator[Any]:
    complete = hint is int
    numbers: list[Any] = [0, 1, 2, 3, 4, 7, 8] if complete else [0.0, 1e-6, 0.25, 0.5, 1.0, 1.5]
    if typing.get_origin(hint) is tuple:
        return
    if isinstance(near, (int, float)) and not isinstance(near, bool):
        numbers += [near, near - 1, near + 1, near * 2, near // 2] if complete else [near, near / 2, near * 2]
    for bound in bounds:
        numbers += [getattr(bound, name) for name in ("ge", "le", "gt", "lt") if hasattr(bound, name)]
    for number in dict.fromkeys(numbers):
        if all(_keeps(number, bound) for bound in bounds) and abs(number) < 10_000:
            yield int(number) if complete else float(number)


def _keeps(number: float, bound: Any) -> bool:
    return not (
        (isinstance(bound, Ge) and number < bound.ge)
        or (isinstance(bound, Gt) and number <= bound.gt)
        or (isinstance(bound, Le) and number > bound.le)
        or (isinstance(bound, Lt) and number >= bound.lt)
    )


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


def problem_of(overrides: Sequence[str], function: Callable[[Sequence[str]], object] = load) -> Problem:
    """Return the only problem for which overrides are refused."""
    with pytest.raises(ConfigError) as refused:
        function(overrides)
    (problem,) = refused.value.problems
    return problem
