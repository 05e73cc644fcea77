"""The graph's words: what a stage is before anything is hashed, and the bytes that it will write."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from stages.base.layout import ROLES

if TYPE_CHECKING:
    from stages.sections import Sections


@dataclass(frozen=True)
class Program:
    """Somebody else's program that does a stage's work."""

    name: str
    module: str
    """Holds the functions of stages.engines.outside.Module; imported only when it is needed."""
    version: int
    """Code version, raised by hand whenever the stage's output changes for the same input."""


@dataclass(frozen=True)
class Stage:
    """One stage as the graph knows it, before anything is hashed."""

    name: str
    sections: tuple[str, ...]
    """Top-level parts of the configuration that the stage reads, and no more."""
    inputs: Mapping[str, str] = field(default_factory=dict)
    """Input name -> name of the stage whose artifact it is."""
    reads: tuple[str, ...] = ()
    """All the files that it reads of its inputs, besides their manifests; empty: any."""
    external: tuple[Path, ...] = ()
    """The user's files that the stage reads."""
    workers: int = 1
    """Processes; more than one run under msrun."""
    computes: bool = False
    """Whether each process occupies a card."""
    bytes_written: int | None = None
    """Bytes that the stage puts on disk, checkpoints included; None: unknown, small."""
    skipped: str | None = None
    """Why the stage is left out, or None."""
    unread: frozenset[tuple[str, str]] = frozenset()
    """(section, key) in `sections` that change nothing of the output, so that they are not fingerprinted."""
    program: Program | None = None
    """Does the work: its `prepare` writes its files, launch runs it, its `collect` brings the result home.
    None: `python -m stages NAME`."""


EXPORT_SECTIONS = ("model", "export", "dataset", "tokenize", "rollout", "reward", "train", "evaluate", "seed")
"""What a Hugging Face directory is made from that can be used as it is, and its model card."""
TOKENIZE = Stage(
    "tokenize", ("model", "dataset", "tokenize"), {"fetch": "fetch", "fetch_dataset": "fetch_dataset"}
)


def rank_bytes(run: Sections, size: int | None = None) -> dict[str, int]:
    """Bytes of one role's rank directories, all ranks together."""
    layouts = {role: run.layout.role(role) for role in ROLES}
    size = run.model.weight_bytes if size is None else size
    return {role: size * layout.data_parallel * layout.context_parallel for role, layout in layouts.items()}


def growth(run: Sections) -> int:
    """Factor by which weights grow that are fetched in 16 bits and trained in 32."""
    return 2 if run.model.param_init_type == "float32" and run.model.torch_dtype != "float32" else 1
