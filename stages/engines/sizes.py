"""Estimates of the bytes that stages write."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stages.base.layout import ROLES

if TYPE_CHECKING:
    from stages.sections import Sections


def rank_bytes(run: Sections, size: int | None = None) -> dict[str, int]:
    """Return the bytes of each role's rank directories, summed over ranks."""
    layouts = {role: run.layout.role(role) for role in ROLES}
    size = run.model.weight_bytes if size is None else size
    return {role: size * layout.data_parallel * layout.context_parallel for role, layout in layouts.items()}


def growth(run: Sections) -> int:
    """Return the factor by which weights grow that are fetched in 16 bits and trained in 32."""
    return 2 if run.model.param_init_type == "float32" and run.model.torch_dtype != "float32" else 1
