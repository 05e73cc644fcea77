"""One role's model on this worker, filled with its shards."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from stages.base.layout import RoleLayout
from stages.grpo.collectives import Groups
from stages.grpo.model import CausalLM
from stages.grpo.parallel import Mesh
from stages.grpo.parameters import parts
from stages.models.config import ModelConfig
from stages.weights.strategy.files import Strategy, read_strategy


@dataclass(frozen=True)
class RoleModel:
    """One role's weights on this worker, with their layout."""

    model: CausalLM
    mesh: Mesh
    strategy: Strategy
    split: tuple[bool, ...]
    """True for each parameter of which the cards of a model-parallel group hold different parts."""


def build(
    model: ModelConfig, layout: RoleLayout, strategy: Path, rank: int, groups: Groups, positions: int
) -> RoleModel:
    """Build the model with zero weights, sharded as the strategy file says.

    Args:
        model: the full model.
        layout: the role's layout.
        strategy: the role's directory of strategy files.
        rank: this worker.
        groups: communication groups.
        positions: longest prompt and completion together.
    """
    mesh, layouts = Mesh.of(layout, rank), read_strategy(strategy)
    split = {name: is_split(layouts, sources) for name, sources in parts(model).items()}
    network = CausalLM(
        model, positions, mesh, groups.of(mesh.model_ranks),
        split_embedding=split["embedding"], split_head=split.get("head", False),
    )  # fmt: skip
    return RoleModel(network, mesh, layouts, tuple(split[name] for name in network.names))


def is_split(strategy: Strategy, names: Sequence[str]) -> bool:
    """Return True if cards hold different parts of a parameter (of the first of those it is stacked from)."""
    layout = strategy.tensors[names[0]]
    return any(axis != -1 for axis in layout.tensor_map)
