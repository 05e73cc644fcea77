"""Declaration of a stage."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

RequiredFiles = Callable[[Mapping[str, Any]], Iterable[str]]
"""Function from the config sections that a stage read to patterns of paths in its artifact.

Each pattern must match at least one file; `a|b` means a or b. The manifest records them.
"""


@dataclass(frozen=True)
class Program:
    """External program that does a stage's work."""

    name: str
    module: str
    """Module with the functions of stages.engines.outside.Module; imported only when needed."""
    version: int
    """Code version; raise it whenever the stage's output changes for the same input."""
    section: str = "engine"
    """Section of the configuration with the program's settings."""


@dataclass(frozen=True)
class UserCode:
    """Code of the user, and of packages, that a stage executes; the fingerprint covers what it names."""

    modules: Mapping[str, Path]
    """Module -> its file."""
    files: tuple[Path, ...] = ()
    """Further files that the code reads while it runs."""
    packages: Mapping[str, str] = field(default_factory=dict)
    """Installed package that the code imports -> version."""

    @property
    def external(self) -> tuple[Path, ...]:
        """All files, ordered by module name, those of the code first."""
        return (*dict.fromkeys(self.modules[name] for name in sorted(self.modules)), *self.files)


@dataclass(frozen=True)
class Stage:
    """Declaration of one stage.

    stages/catalog.py declares each stage once; an engine's graph takes a declaration and replaces what
    differs for a run (dataclasses.replace).
    """

    name: str
    sections: tuple[str, ...]
    """Sections of the configuration that the stage reads."""
    inputs: Mapping[str, str] = field(default_factory=dict)
    """Input name -> name of the stage whose artifact it is."""
    summary: str = ""
    """What the stage produces, as shown by `luigi --help`."""
    version: int = 1
    """Code version; raise it whenever the stage's output changes for the same input."""
    entry: str = ""
    """Module whose `run(context)` does the work, or MODULE:FUNCTION."""
    required_files: RequiredFiles = lambda config: ()
    reads: tuple[str, ...] = ()
    """File names that the stage reads from its inputs, besides their manifests; empty: any file."""
    external: tuple[Path, ...] = ()
    """User files that the stage reads; their content is part of the fingerprint."""
    user_code: UserCode | None = None
    """The code of reward functions; its files are in `external` too."""
    workers: int = 1
    """Number of processes; more than one run under msrun."""
    steps: Callable[[Mapping[str, Any]], int] | None = None
    """Function from the config sections that a stage read to the most steps that it takes, by which its
    duration grows. Sections may come from a manifest of an earlier version: it may raise KeyError or
    TypeError."""
    computes: bool = False
    """True if each process occupies a card."""
    bytes_written: int | None = None
    """Bytes that the stage writes to disk, checkpoints included; None: unknown and small."""
    skipped: str | None = None
    """Reason why the stage is left out, or None."""
    unread: frozenset[tuple[str, str]] = frozenset()
    """(section, key) pairs in `sections` that do not affect the output and are not fingerprinted."""
    program: Program | None = None
    """External program that does the work instead of `entry`."""
    packages: tuple[str, ...] = ()
    """Packages that `entry` imports besides grpoflow's requirements; an extra of grpoflow installs each."""

    @property
    def imports(self) -> tuple[str, ...]:
        """The packages that must be installed next to grpoflow; a program has an environment of its own."""
        return () if self.program is not None else self.packages

    @property
    def task_name(self) -> str:
        """Name of its Luigi task: fetch_dataset -> FetchDataset."""
        return "".join(word.capitalize() for word in self.name.split("_"))


EXPORT_SECTIONS = ("model", "export", "dataset", "tokenize", "rollout", "reward", "train", "evaluate", "seed")
"""Sections that a ready-to-use Hugging Face directory and its model card are made from."""
