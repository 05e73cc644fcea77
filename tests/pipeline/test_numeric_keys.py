"""Every numeric key of the configuration has a lower bound and refuses values that are no numbers."""

import copy
import functools
import math
import types
import typing

import pytest
from annotated_types import Ge, Gt, Le, Lt

from launch.config import LauncherConfig
from pipeline.config.compose import compose
from pipeline.config.sections import Config
from stages.base.errors import ConfigError
from stages.base.reader import read
from tests.pipeline.plans import leaves

ENGINES = ("local", "mindrlhf", "mindrlhf_one_stage", "mindspeed_rl")
SIGNED = {
    "reward.weights": "a negative weight is a penalty",
    "reward.length.correct": "rewards may be negative",
    "reward.length.wrong": "rewards may be negative",
    "reward.length.exceeded": "rewards may be negative",
    "engine.verifier_weight": "a negative weight is a penalty",
    "layout.train.offset": "a pipeline stage may have fewer layers than its share",
    "layout.generate.offset": "a pipeline stage may have fewer layers than its share",
    "layout.reference.offset": "a pipeline stage may have fewer layers than its share",
}
"""Keys without a lower bound, and the reason."""


def number_of(hint, bounds=()):
    """Return (int or float, bounds, in a list) of a numeric type, else None."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Annotated:
        return number_of(arguments[0], (*bounds, *arguments[1:]))
    if origin in (types.UnionType, typing.Union):
        return next(filter(None, (number_of(option, bounds) for option in arguments)), None)
    if origin is tuple:
        inner = number_of(arguments[0], bounds)
        return inner and (*inner[:2], True)
    return (hint, bounds, False) if hint in (int, float) else None


def numeric_keys():
    """Yield key, its type, its bounds and composed values that contain it; each key of each engine once."""
    seen = set()
    for engine in ENGINES:
        model = "qwen3_30b_a3b" if engine == "mindspeed_rl" else "tiny"
        values = compose([f"engine={engine}", f"model={model}", "reward=cosine"])
        launcher = leaves(values["launcher"], LauncherConfig, ("launcher",))
        for leaf in (*leaves(values), *launcher):
            if (number := number_of(leaf.hint)) and str(leaf) not in seen:
                seen.add(str(leaf))
                yield pytest.param(leaf.path, number, values, id=str(leaf))


CASES = list(numeric_keys())


def problems(values, path, value):
    values = copy.deepcopy(values)
    functools.reduce(dict.__getitem__, path[:-1], values)[path[-1]] = value
    try:
        read(Config, values)
    except ConfigError as error:
        return [problem for problem in error.problems if problem.path.startswith(".".join(path))]
    return []


def test_keys_of_every_section_are_covered():
    keys = {case.id for case in CASES}
    assert {"seed", "train.learning_rate", "model.eos_token_id", "engine.gpu_memory_utilization"} <= keys
    assert set(SIGNED) <= keys
    assert len(keys) > 150


@pytest.mark.parametrize(("path", "number", "values"), CASES)
def test_a_numeric_key_accepts_its_bounds_and_nothing_beyond(path, number, values):
    kind, bounds, is_list = number
    bad = [math.nan, math.inf, -math.inf, True, "many", "", {}]
    lower = [bound for bound in bounds if isinstance(bound, Ge | Gt)]
    assert lower or ".".join(path) in SIGNED, "this key needs a lower bound"
    for bound in bounds:
        bad += [bound.gt, bound.gt - 1] if isinstance(bound, Gt) else []
        bad += [bound.ge - 1, bound.ge - 1e-3] if isinstance(bound, Ge) else []
        bad += [bound.lt, bound.lt + 1] if isinstance(bound, Lt) else []
        bad += [bound.le + 1, bound.le + 1e-3] if isinstance(bound, Le) else []
    bad += [1.5] if kind is int else []
    good = [bound.ge for bound in bounds if isinstance(bound, Ge)]
    good += [bound.le for bound in bounds if isinstance(bound, Le)]
    for value in bad:
        assert problems(values, path, [value] if is_list else value), value
    for value in good:
        assert not problems(values, path, [value] if is_list else value), value
