"""How one role's weights lie on the cards, with MindSpore's key names."""

from dataclasses import dataclass
from typing import Annotated, Literal

from annotated_types import Ge

from stages.base.bounds import NonNegative, Positive

Role = Literal["train", "generate", "reference"]
ROLES: tuple[Role, ...] = ("train", "generate", "reference")


@dataclass(frozen=True)
class RoleLayout:
    """parallel_config of one role (mindformers names)."""

    data_parallel: Positive
    """Replicas, each with its share of the batch."""
    model_parallel: Positive
    """Cards that share each matrix; it must divide the numbers of heads."""
    pipeline_stage: Positive
    """Groups of cards that share the layers; engine=local knows 1 alone."""
    context_parallel: Positive
    """Cards that share each sequence; engine=local knows 1 alone."""
    expert_parallel: Positive
    """Cards of data_parallel that share the experts of a mixture."""
    use_seq_parallel: bool
    """Share activations between matrices along the sequence, over the cards of model_parallel."""
    vocab_emb_dp: bool
    """Replicate the embedding over model_parallel instead of splitting the vocabulary."""
    micro_batch_num: Positive
    """Micro-batches per step: gradient accumulation (local), pipeline micro-batches (mindrlhf)."""
    enable_parallel_optimizer: bool
    """Shard weights and optimizer state over the data_parallel replicas too."""
    optimizer_weight_shard_size: Annotated[int, Ge(-1)]
    """Replicas that share one weight under the parallel optimizer; -1: all of them."""
    parallel_optimizer_threshold_kb: NonNegative
    """Tensors below this size (KiB, at param_init_type) stay whole."""
    offset: tuple[int, ...]
    """Layers added to (or taken from) each pipeline stage's equal share; empty: none."""
    recompute: bool
    """Recompute activations in the backward pass (rendered YAML, memory estimates)."""
    select_recompute: bool
    """Recompute only what is cheap (rendered YAML, memory estimates)."""
    opt_offload: bool
    """Keep the optimizer's state in host memory."""

    @property
    def cards(self) -> int:
        """Cards that the role occupies (expert_parallel divides data_parallel, it adds no cards)."""
        return self.data_parallel * self.model_parallel * self.pipeline_stage * self.context_parallel

    @property
    def name(self) -> str:
        """dpX_mpY_ppZ, with _cpW and _epV where above 1."""
        tail = f"_cp{self.context_parallel}" if self.context_parallel > 1 else ""
        tail += f"_ep{self.expert_parallel}" if self.expert_parallel > 1 else ""
        return f"dp{self.data_parallel}_mp{self.model_parallel}_pp{self.pipeline_stage}{tail}"


@dataclass(frozen=True)
class LayoutConfig:
    """The three roles of GRPO on the same cards."""

    name: str
    """The train role's name."""
    train: RoleLayout
    """The policy."""
    generate: RoleLayout
    """The policy while it samples; null takes degrees from train."""
    reference: RoleLayout
    """Role of the reference model for the KL term; null takes degrees from train."""

    def role(self, role: Role) -> RoleLayout:
        """Return the layout of one role."""
        return {"train": self.train, "generate": self.generate, "reference": self.reference}[role]
