"""Model families, one module with a FAMILY each; they are discovered, not listed."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from stages.base.rules import Broken, Rules, be
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
    assert network is not None  # RULES
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


@dataclass(frozen=True)
class Trained:
    """A model and the engine that is to train it."""

    model: ModelFields
    engine: str
    trains: Callable[[Family], bool] = lambda family: True
    """Return True if the engine trains a family."""
    alternatives: Callable[[Family], Iterable[str]] = lambda family: ()
    """Return the engines that train a family."""


RULES = Rules[Trained]("family", "ours: stages/models")


@RULES.row("model.{}", each=[family.name for family in FAMILIES.values() if family.section])
def _section(trained: Trained, name: str) -> Broken:
    """Require the section of the model's family, and no other family's."""
    trained_name = trained.model.family
    if (getattr(trained.model, name) is None) == (name != trained_name):
        return None
    rule = f"is a section of {FAMILIES[name].title}, but model.family={trained_name}"
    if name == trained_name:
        rule = f"is required with model.family={name}"
    return rule, f"give both, or neither; model={name} does", None


RULES.must(
    "model.qkv_concat",
    be(False, "mindformers stores this family with q, k and v apart"),
    when=lambda trained: not family_of(trained.model).fuses,
)


@RULES.row("model.family")
def _trained(trained: Trained) -> Broken:
    """Require a family that the engine trains."""
    family = family_of(trained.model)
    if trained.trains(family):
        return None
    rule = f"engine={trained.engine} trains {trained_by(trained.trains)} models"
    return rule, f"choose engine={' or '.join(trained.alternatives(family))}"


@RULES.row("model.head_dim", unless=("trained",))
def head_dim(trained: Trained) -> Broken:
    """Check that the engine's files can express the size of attention heads."""
    model, family = trained.model, family_of(trained.model)
    named = family.head_dim is not None or family.custom_attention
    if trained.engine == "local" or named or model.head_size * model.num_attention_heads == model.hidden_size:
        return None
    usual = model.hidden_size // model.num_attention_heads
    rule = f"must be hidden_size / num_attention_heads={usual}: engine={trained.engine} knows no other size"
    return rule, "choose engine=local"


@RULES.row("model.rope_scaling", unless=("trained",))
def rope_scaling(trained: Trained) -> Broken:
    """Check that the engine's files can express the scaling of rotary positions."""
    scaling = trained.model.rope_scaling
    if scaling is None or trained.engine in ("local", "verl"):
        return None
    rule = "must be null: only engine=local and engine=verl support it"
    return rule, "choose engine=local", f"{{factor: {scaling.factor:g}, …}}"
