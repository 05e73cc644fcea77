"""One role's model on this worker, filled with its shards."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from stages.errors import ConfigError, Problem
from stages.grpo.collectives import Groups
from stages.grpo.config import RolloutConfig, TrainConfig
from stages.grpo.model import Qwen2
from stages.grpo.parallel import Place
from stages.grpo.parameters import EMBEDDING, HEAD, parts
from stages.layout import ROLES, LayoutConfig, RoleLayout
from stages.model_config import ModelConfig
from stages.weights.slicing import Strategy, read_strategy


@dataclass(frozen=True)
class RoleModel:
    """One role's weights on this worker and where they belong."""

    model: Qwen2
    place: Place
    strategy: Strategy
    split: tuple[bool, ...]
    """For each parameter of the model, whether the cards of a model-parallel group hold different parts."""


def build(
    model: ModelConfig, layout: RoleLayout, strategy: Path, rank: int, groups: Groups, positions: int
) -> RoleModel:
    """The model with zero weights, split as the strategy file says.

    Args:
        model: the full model.
        layout: the role's layout.
        strategy: the role's directory of strategy files.
        rank: this worker.
        groups: communication groups.
        positions: longest prompt and completion together.
    """
    place, layouts = Place.of(layout, rank), read_strategy(strategy)
    network = Qwen2(
        model, positions, place, groups.of(place.model_ranks),
        split_embedding=is_split(layouts, (EMBEDDING,)),
        split_head=not model.tie_word_embeddings and is_split(layouts, (HEAD,)),
    )  # fmt: skip
    split = {name: is_split(layouts, sources) for name, sources in parts(model)}
    return RoleModel(network, place, layouts, tuple(split[name] for name in network.names))


def is_split(strategy: Strategy, names: Sequence[str]) -> bool:
    """Whether cards hold different parts of a parameter (of the first of those it is stacked from)."""
    layout = strategy.tensors[names[0]]
    return any(axis != -1 for axis in layout.tensor_map)


def check_local(layout: LayoutConfig, train: TrainConfig, rollout: RolloutConfig) -> None:
    """Refuse what this trainer cannot do.

    Raises:
        ConfigError: a degree other than data_parallel and model_parallel, sharded optimizer state, or
            prompts that do not divide among workers and micro-batches.
    """
    problems = []
    for role in ROLES:
        one = layout.role(role)
        for key in ("pipeline_stage", "context_parallel", "expert_parallel"):
            if getattr(one, key) > 1:
                rule = "the local trainer knows data_parallel and model_parallel only"
                problems.append(Problem(f"layout.{role}.{key}", getattr(one, key), rule, "set it to 1"))
        if one.enable_parallel_optimizer:
            rule = "the local trainer keeps each card's optimizer state whole"
            problems.append(
                Problem(f"layout.{role}.enable_parallel_optimizer", True, rule, "set it to false")
            )
        if one.cards != layout.train.cards:
            problems.append(
                Problem(f"layout.{role}", one.name, f"must occupy {layout.train.cards} cards as train does")
            )
        shares = one.data_parallel * (one.micro_batch_num if role != "generate" else 1)
        if train.prompts_per_step % shares:
            rule = f"must be a multiple of {shares} (layout.{role}: data_parallel x micro_batch_num)"
            problems.append(Problem("train.prompts_per_step", train.prompts_per_step, rule))
    if problems:
        raise ConfigError(problems)
