"""Model families, one module with a FAMILY each; they are discovered, not listed."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from stages.base.checks import equal
from stages.base.errors import Problem
from stages.models.family import Family, Network, Weight
from stages.models.shape import ModelFields, Shape

FAMILIES: Mapping[str, Family] = {
    module.name: importlib.import_module(f"{__name__}.{module.name}").FAMILY
    for module in pkgutil.iter_modules(__path__)
}
"""Family by its name, which is the module's."""


def family_of(model: Shape) -> Family:
    """Return the family of a model."""
    return FAMILIES[model.family]


def recognised(config: Mapping[str, Any]) -> Family | None:
    """Return the family of a config.json by its architectures, else by its model_type."""
    listed = config.get("architectures")
    for family in FAMILIES.values():
        if isinstance(listed, list) and family.architecture in listed:
            return family
    kind = config.get("model_type")
    return next((family for family in FAMILIES.values() if family.model_type == kind), None)


def network_of(model: Shape) -> Network:
    """Return mindformers' network of a model whose family a mindformers-based engine trains."""
    network = family_of(model).network
    assert network is not None  # family_problems
    return network


def weights_of(shape: Shape, qkv_concat: bool = False) -> list[Weight]:
    """Return every parameter of a model in mindformers, in the model's order."""
    return list(family_of(shape).weights(shape, qkv_concat))


def parameter_shapes(shape: Shape, qkv_concat: bool = False) -> dict[str, tuple[int, ...]]:
    """Return the full shape of every mindformers parameter, in the model's order."""
    return {weight.name: weight.shape for weight in weights_of(shape, qkv_concat)}


def tensor_shapes(weights: Iterable[Weight]) -> dict[str, tuple[int, ...]]:
    """Return the shape of every Hugging Face tensor that parameters consist of."""
    rows: dict[str, int] = {}
    shapes: dict[str, tuple[int, ...]] = {}
    for weight in weights:
        if weight.stacked:
            shapes |= dict.fromkeys(weight.parts, weight.shape[1:])
            continue
        for block in weight.rows:
            part, row_range = weight.parts[block.part], block.rows
            rows[part] = rows.get(part, 0) + len(range(row_range.start, row_range.stop, row_range.step or 1))
            shapes[part] = (rows[part], *weight.shape[1:])
    return shapes


def trained_by(trains: Callable[[Family], bool] = lambda family: True) -> str:
    """Return the names of the families that an engine trains (default: all), for messages: "A, B and C"."""
    *firsts, last = (family.title for family in FAMILIES.values() if trains(family))
    return f"{', '.join(firsts)} and {last}" if firsts else last


def family_problems(
    model: ModelFields,
    engine: str,
    trains: Callable[[Family], bool],
    alternatives: Callable[[Family], Iterable[str]],
) -> Iterator[Problem]:
    """Yield problems of a model's family and of the engine that is to train it.

    Args:
        model: the section model.
        engine: the engine's name.
        trains: function that returns True if the engine trains a family.
        alternatives: function that returns the engines that train a family.
    """
    family, source = family_of(model), "ours: stages/models"
    for other in FAMILIES.values():
        if other.section and (getattr(model, other.name) is None) == (other.name == model.family):
            rule = f"is a section of {other.title}, but model.family={model.family}"
            if other.name == model.family:
                rule = f"is required with model.family={other.name}"
            remedy = f"give both, or neither; model={other.name} does"
            yield Problem(f"model.{other.name}", None, rule, remedy, source)
    if not family.fuses:
        why = "mindformers stores this family with q, k and v apart"
        yield from equal("model.qkv_concat", model.qkv_concat, False, why, source)
    if not trains(family):
        rule = f"engine={engine} trains {trained_by(trains)} models"
        remedy = f"choose engine={' or '.join(alternatives(family))}"
        yield Problem("model.family", model.family, rule, remedy, source)
        return
    yield from head_problems(model, engine)
    yield from rope_problems(model, engine)


def head_problems(model: ModelFields, engine: str) -> Iterator[Problem]:
    """Yield a problem if the engine's files cannot express the size of attention heads."""
    family = family_of(model)
    named = family.head_dim is not None or family.custom_attention
    if engine == "local" or named or model.head_size * model.num_attention_heads == model.hidden_size:
        return
    usual = model.hidden_size // model.num_attention_heads
    rule = f"must be hidden_size / num_attention_heads={usual}: engine={engine} knows no other size"
    yield Problem("model.head_dim", model.head_dim, rule, "choose engine=local", "ours: stages/models")


def rope_problems(model: ModelFields, engine: str) -> Iterator[Problem]:
    """Yield a problem if the engine's files cannot express the scaling of rotary positions."""
    scaling = model.rope_scaling
    if scaling is not None and engine not in ("local", "verl", "areal"):
        rule = "must be null: only engine=local, verl and areal support it"
        shown = f"{{factor: {scaling.factor:g}, …}}"
        yield Problem("model.rope_scaling", shown, rule, "choose engine=local", "ours: stages/models")
