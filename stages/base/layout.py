"""Distribution of each role's weights over the cards, with MindSpore's key names."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Literal

from annotated_types import Ge

from stages.base.bounds import NonNegative, Positive

Role = Literal["train", "generate", "reference"]
ROLES: tuple[Role, ...] = ("train", "generate", "reference")
Recompute = bool | tuple[NonNegative, ...]
"""All layers or none, or the number of layers of each pipeline stage, counted from the stage's first one."""


def card_count(role: Mapping[str, int]) -> int:
    """Return the number of cards that a role occupies (expert_parallel divides data_parallel)."""
    return role["data_parallel"] * role["model_parallel"] * role["pipeline_stage"] * role["context_parallel"]


def layout_name(role: Mapping[str, int]) -> str:
    """Return dpX_mpY_ppZ, followed by _cpW and _epV if these degrees are not 1."""
    name = f"dp{role['data_parallel']}_mp{role['model_parallel']}_pp{role['pipeline_stage']}"
    name += f"_cp{role['context_parallel']}" if role["context_parallel"] != 1 else ""
    return name + (f"_ep{role['expert_parallel']}" if role["expert_parallel"] != 1 else "")


@dataclass(frozen=True)
class RoleLayout:
    """Parallel configuration of one role, with the names of mindformers."""

    data_parallel: Positive
    """Replicas of the model; each processes a part of the batch."""
    model_parallel: Positive
    """Cards that share each matrix; must divide the numbers of heads."""
    pipeline_stage: Positive
    """Groups of cards that share the layers; must be 1 for engine=local."""
    context_parallel: Positive
    """Cards that share each sequence; must be 1 for engine=local."""
    expert_parallel: Positive
    """Cards of data_parallel that share the experts of a mixture."""
    use_seq_parallel: bool
    """Split activations between matrices along the sequence over the cards of model_parallel."""
    vocab_emb_dp: bool
    """Replicate the embedding over model_parallel instead of splitting the vocabulary."""
    micro_batch_num: Positive
    """Micro-batches per step: gradient accumulation (local), pipeline micro-batches (mindrlhf)."""
    enable_parallel_optimizer: bool
    """Shard weights and optimizer state over the data_parallel replicas, too."""
    optimizer_weight_shard_size: Annotated[int, Ge(-1)]
    """Replicas that share one weight under the parallel optimizer; -1: all of them."""
    parallel_optimizer_threshold_kb: NonNegative
    """Tensors below this size (KiB, at param_init_type) are not sharded."""
    offset: tuple[int, ...]
    """Layers added to (or taken from) each pipeline stage's equal share; empty: none."""
    recompute: Recompute
    """Recompute activations in the backward pass (rendered YAML, memory estimates): true, false or, for
    mindformers' networks, the number of layers in each pipeline stage, as in [7, 7]."""
    select_recompute: Recompute | Mapping[str, Recompute] = field(hash=False)  # a mapping has no hash
    """Recompute only cheap operators of the layers that recompute leaves out: true, false, numbers as above
    or such a value for each of mindformers' operators, as in {feed_forward\\.mul: [14, 14]}."""
    opt_offload: bool
    """Keep the optimizer's state in host memory."""

    @property
    def cards(self) -> int:
        """Number of cards that the role occupies."""
        return card_count(vars(self))

    @property
    def name(self) -> str:
        """Name of the layout."""
        return layout_name(vars(self))

    def recomputed(self, stage: int, layers: int) -> int:
        """Return how many of a pipeline stage's layers are recomputed as a whole."""
        if isinstance(self.recompute, bool):
            return layers if self.recompute else 0
        return min(layers, self.recompute[stage]) if stage < len(self.recompute) else 0


@dataclass(frozen=True)
class LayoutConfig:
    """Layouts of the three roles of GRPO, which take turns on the same cards."""

    name: str
    """The train role's name."""
    train: RoleLayout
    """Layout of the policy during training."""
    generate: RoleLayout
    """Layout of the policy during sampling; null degrees follow from train."""
    reference: RoleLayout
    """Layout of the reference model for the KL term; null degrees follow from train."""

    def role(self, role: Role) -> RoleLayout:
        """Return the layout of one role."""
        layout: RoleLayout = getattr(self, role)
        return layout
