"""What the split stage writes."""

from __future__ import annotations

from dataclasses import dataclass

from stages.layout import Role
from stages.weights.formats import Format


@dataclass(frozen=True)
class SplitConfig:
    """What split writes."""

    roles: tuple[Role, ...]
    """Roles to cut the weights for. conf has null, which the pipeline fills in: train alone when sft
    reshards its own result for the others, else all three."""
    format: Format
    """rank_K/model.safetensors, which the embedded trainer reads, or rank_K/model.ckpt."""
