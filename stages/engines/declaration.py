"""Declaration of an engine, from which graph, fingerprints, checks, launch and doctor are derived."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from stages.base.errors import Problem
from stages.base.graph import Program, RequiredFiles, Stage
from stages.base.rules import Rules

if TYPE_CHECKING:
    from stages.models.config import ModelConfig
    from stages.models.family import Family
    from stages.models.memory import RoleMemory
    from stages.rewards.probe import Leftover
    from stages.sections import Sections

Window = tuple[str, str, str]
"""Distribution, versions that work (empty: any), reason."""


@dataclass(frozen=True)
class Load:
    """Size of one training step and the memory available for it, by which layouts are ranked."""

    tokens: int
    """Tokens that training computes in one step."""
    updates: int
    """Optimizer updates in one step."""
    available: int
    """Bytes that a card, or a worker of this machine, may occupy."""


@dataclass(frozen=True)
class Known:
    """Versions and model shapes that an engine is known to work with."""

    packages: tuple[Window, ...]
    cann: Window
    driver: Window


@dataclass(frozen=True)
class Checkout:
    """Repository that an engine is run from."""

    name: str
    setting: str
    """Key of the configuration that holds its directory."""
    judge: Callable[[str], str]
    """Return the contract (interface version) of a directory; raises ConfigError if it has no known one."""
    description: str
    """What the directory must be, for messages."""
    package: str | None = None
    """Installed distribution that is used if the setting is empty."""
    window: str = ""
    """Versions of that distribution that work."""
    recognise: Callable[[str], str] | None = None
    """Return the contract without the further checks of `judge`; None: same as `judge`."""
    needed_by: tuple[str, ...] = ()
    """Contracts of the engine's first checkout that need this one; empty: all."""

    @property
    def key(self) -> str:
        """The setting's name within its section."""
        return self.setting.rpartition(".")[2]


@dataclass(frozen=True)
class Engine:
    """One engine. Functions of `Sections` take the run's configuration."""

    name: str
    trains: Callable[[Family], bool]
    """Return True if it trains the models of a family."""
    stages: Callable[[Sections], tuple[Stage, ...]]
    """Stages from convert to export in order; for mindformers its sft stage."""
    rules: Rules[Any]
    """Rules that a run must keep, applied to `subject`."""
    subject: Callable[[Sections, int], Any] = lambda run, cards_per_node: run
    """Return what the rules check, for nodes with a number of cards."""
    required_files: Mapping[str, RequiredFiles] = field(default_factory=dict)
    """Stage -> files that its artifacts contain, where they differ from the stage's own declaration."""
    programs: tuple[Program, ...] = ()
    """Outside programs that do the work of stages."""
    checkouts: tuple[Checkout, ...] = ()
    """Repositories that it is run from. The contract of the first one is the engine's."""
    known: Mapping[str, Known] = field(default_factory=dict)
    """Contract of the first checkout -> versions that work; without a checkout the first is assumed."""
    optional_packages: Callable[[Any], tuple[Window, ...]] = lambda settings: ()
    """Return distributions that only some settings need."""
    imports: tuple[str, ...] = ()
    """Distributions without which none of its programs starts."""
    rehearsal: str = ""
    """Module with the functions of pipeline.rehearsal.Rehearsal; empty if it cannot be rehearsed on a CPU."""
    unrehearsed: str = ""
    """Why it cannot be rehearsed."""
    derive: Callable[[dict[str, Any]], None] = lambda values: None
    """Fill in nulls that follow from its settings in the complete plain configuration. May raise KeyError or
    TypeError on values of a wrong type, which are reported when the configuration is read."""
    notes: Callable[[Sections], Iterable[str]] = lambda run: ()
    """Return notes for the plan, besides those of `all_notes`."""
    memory: Callable[[Sections], tuple[RoleMemory, ...]] = lambda run: ()
    """Return the memory estimate of each role for one card or worker."""
    shortage: Callable[[Sections, Sequence[RoleMemory], int], list[str]] = lambda run, roles, have: []
    """Return warnings about roles that may not fit; `have` is this machine's memory in bytes."""
    load: Callable[[Sections, int], Load] | None = None
    """Return the work by which layouts are ranked, given this machine's memory in bytes."""
    leftover: Callable[[Mapping[str, Any], ModelConfig], Leftover | None] = lambda settings, model: None
    """Return what its decoder leaves of a stop token in rewarded text, from its section's plain values."""
    keeps_tags: bool = False
    """True if rewards read tags that are special tokens of the tokenizer, and a tag that the prompt opens."""
    reward_problems: Callable[[Any], Iterable[Problem]] | None = None
    """Return problems of the engine's own prompts and rewards; None if it uses the run's."""

    @property
    def settings_section(self) -> str:
        """Section of the configuration with its settings."""
        return self.programs[0].section if self.programs else "engine"

    def settings(self, run: Sections) -> Any:
        """Return the section that configures the engine."""
        return getattr(run, self.settings_section)

    def contract(self, run: Sections) -> str | None:
        """Return the contract of the first checkout; None if the engine has only one."""
        return getattr(self.settings(run), "contract", None)

    def needed(self, run: Sections) -> tuple[Checkout, ...]:
        """Return the checkouts that a run needs."""
        contract = self.contract(run)
        return tuple(
            checkout
            for checkout in self.checkouts
            if not checkout.needed_by or contract in checkout.needed_by
        )

    def works_with(self, run: Sections) -> Known | None:
        """Return the versions that a run is known to work with."""
        return self.known.get(self.contract(run) or "", next(iter(self.known.values()), None))

    def all_notes(self, run: Sections) -> Iterator[str]:
        """Yield the notes for the plan, first that there is no checkout."""
        for first in self.checkouts[:1]:
            if getattr(self.settings(run), first.key) is None:
                assumed = self.contract(run) if self.contract(run) == next(iter(self.known)) else None
                contract = f"contract {assumed} is assumed; " if assumed else ""
                yield f"{first.setting} is not set: {contract}run refuses without it"
        yield from self.notes(run)

    def missing(self, run: Sections) -> Iterator[Problem]:
        """Yield the missing checkouts that a run needs; `plan` and `run --render` do without them."""
        settings = self.settings(run)
        for checkout in self.needed(run):
            if checkout.package is None and getattr(settings, checkout.key) is None:
                rule = f"is required to run: {checkout.description}"
                yield Problem(checkout.setting, None, rule, "give its directory")
