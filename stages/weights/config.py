"""How weights are converted, split and exported; imports no numpy, for plans read it."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from stages.base.errors import Problem
from stages.base.layout import Role
from stages.models.config import Dtype

Format = Literal["safetensors", "ckpt"]
"""Format of weight files: safetensors, or MindSpore's older .ckpt for tools that read nothing else."""


@dataclass(frozen=True)
class ConvertConfig:
    """Settings of convert: form of the weights with mindformers' names."""

    materialize: bool
    """Write renamed safetensors files instead of the name map alone (engines that read files need it)."""
    dtype: Dtype | None
    """Cast the weights; null keeps what the source has."""
    format: Format
    """Format of materialised weights: safetensors with an index, or one model.ckpt."""


@dataclass(frozen=True)
class SplitConfig:
    """Settings of split."""

    roles: tuple[Role, ...] | None
    """Roles to cut the weights for; null: train alone when sft reshards its own result for the others, else
    all three."""
    format: Format
    """rank_K/model.safetensors, which the embedded trainer reads, or rank_K/model.ckpt."""

    @property
    def chosen_roles(self) -> tuple[Role, ...]:
        """Roles of a complete configuration, in which null is replaced."""
        assert self.roles is not None
        return self.roles


def split_problems(config: SplitConfig) -> Iterator[Problem]:
    """Yield problems of the section split."""
    source = "ours: stages/weights/split.py"
    roles = config.chosen_roles
    if not roles:
        yield Problem("split.roles", [], "must name at least one role", "set it to null", source)
    for index, role in enumerate(roles):
        if role in roles[:index]:
            yield Problem(f"split.roles[{index}]", role, "is named twice", "name it once", source)


@dataclass(frozen=True)
class ExportConfig:
    """Settings for storing the trained weights."""

    dtype: Dtype | None
    """Storage dtype; null: each tensor's dtype in the fetched model."""
