"""One stage as an engine describes it, and what the descriptions share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

from stages.layout import ROLES

if TYPE_CHECKING:
    from pipeline.config.load import Config

T = TypeVar("T")


@dataclass(frozen=True)
class Stage:
    """One stage as the graph knows it, before anything is hashed."""

    name: str
    sections: tuple[str, ...]
    """Top-level parts of the configuration that the stage reads, and no more."""
    inputs: Mapping[str, str] = field(default_factory=dict)
    """Input name -> name of the stage whose artifact it is."""
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
    engine: str | None = None
    """The outside program (engines/program.py) that does the work: `python -m stages ENGINE_prepare` writes
    its files, launch runs it, ENGINE_collect brings the result home. None: `python -m stages NAME`."""


@dataclass(frozen=True)
class Load:
    """What a layout is judged by."""

    tokens: int
    """Tokens that training computes in one step."""
    updates: int
    """Optimizer updates in one step."""
    available: int
    """Bytes that a card, or a worker of this machine, may occupy."""


TOKENIZE = Stage(
    "tokenize", ("model", "dataset", "tokenize"), {"fetch": "fetch", "fetch_dataset": "fetch_dataset"}
)


def as_text(value: Any) -> Any:
    """A variable's text, which a number is, too; true is not, for it could mean 1."""
    return str(value) if type(value) in (int, float) else value


def rank_bytes(config: Config, size: int | None = None) -> dict[str, int]:
    """Bytes of one role's rank directories, all ranks together.

    Args:
        config: the run's.
        size: bytes of the whole model once; None: as it is fetched.
    """
    layouts = {role: config.layout.role(role) for role in ROLES}
    size = config.model.weight_bytes if size is None else size
    return {role: size * layout.data_parallel * layout.context_parallel for role, layout in layouts.items()}


def part(cls: type[T], config: Config) -> T:
    """An object made of those sections of a run's configuration that its fields name."""
    return cls(**{field.name: getattr(config, field.name) for field in fields(cast(Any, cls))})
