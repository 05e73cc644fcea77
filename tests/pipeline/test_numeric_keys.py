"""Every numeric key of the configuration has a lower bound, and bounds are enforced."""

import types
import typing

from annotated_types import Ge, Gt

from launch.config import LauncherConfig
from pipeline.config.compose import compose
from pipeline.config.load import load
from tests.pipeline.plans import leaves

ENGINES = ("local", "mindrlhf", "mindrlhf_one_stage", "mindspeed_rl")
SIGNED = {
    "reward.weights", "engine.verifier_weight",  # a negative weight is a penalty
    "reward.length.correct", "reward.length.wrong", "reward.length.exceeded",  # rewards may be negative
    "layout.train.offset", "layout.generate.offset", "layout.reference.offset",  # fewer layers than its share
}  # fmt: skip
"""Keys without a lower bound, and the reason."""


def bounds_of(hint, bounds=()):
    """Return the bounds of a numeric type or of a list of numbers, else None."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Annotated:
        return bounds_of(arguments[0], (*bounds, *arguments[1:]))
    if origin in (types.UnionType, typing.Union):
        return next(
            (part for part in (bounds_of(item, bounds) for item in arguments) if part is not None), None
        )
    if origin is tuple:
        return bounds_of(arguments[0], bounds)
    return bounds if hint in (int, float) else None


def test_every_numeric_key_has_a_lower_bound():
    keys = {}
    for engine in ENGINES:
        model = "qwen3_30b_a3b" if engine == "mindspeed_rl" else "tiny"
        values = compose([f"engine={engine}", f"model={model}", "reward=cosine"])
        launcher = leaves(values["launcher"], LauncherConfig, ("launcher",))
        keys |= {str(leaf): bounds_of(leaf.hint) for leaf in (*leaves(values), *launcher)}
    numeric = {key: bounds for key, bounds in keys.items() if bounds is not None}
    assert {"seed", "train.learning_rate", "model.eos_token_id", "engine.gpu_memory_utilization"} <= set(
        numeric
    )
    assert len(numeric) > 150
    lower = {key for key, bounds in numeric.items() if any(isinstance(bound, Ge | Gt) for bound in bounds)}
    assert set(numeric) - lower == SIGNED


def test_bounds_themselves_are_accepted():
    load(["seed=0", "train.beta=0", "rollout.top_p=1"])
