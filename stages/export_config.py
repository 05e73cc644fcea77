"""How the export stage stores weights."""

from __future__ import annotations

from dataclasses import dataclass

from stages.model_config import Dtype


@dataclass(frozen=True)
class ExportConfig:
    """How the trained weights are stored."""

    dtype: Dtype | None
    """Storage dtype; null: each tensor's dtype in the fetched model."""
