"""How the convert stage writes."""

from __future__ import annotations

from dataclasses import dataclass

from stages.model_config import Dtype
from stages.weights.formats import Format


@dataclass(frozen=True)
class ConvertConfig:
    """How the weights reach mindformers' names."""

    materialize: bool
    """Write renamed safetensors files instead of the name map alone (engines that read files need it)."""
    dtype: Dtype | None
    """Cast the weights; null keeps what the source has."""
    format: Format
    """What materialised weights are written as: safetensors with an index, or one model.ckpt."""
