"""What an engine is: one object that says all that graph, identity, checks, launch and doctor ask of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from stages.base.errors import ConfigError, Problem
from stages.base.graph import Program, Stage
from stages.base.rules import Rules

if TYPE_CHECKING:
    from stages.models.config import ModelConfig
    from stages.models.memory import RoleMemory
    from stages.rewards.probe import Leftover
    from stages.sections import Sections

Window = tuple[str, str, str]
"""Distribution, versions that work (empty: any), why."""


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
    """One repository that an engine is run from."""

    name: str
    setting: str
    """The key of the configuration that names it."""
    judge: Callable[[str], str]
    """The contract that it keeps; raises ConfigError where it keeps none that is known."""
    wanted: str
    package: str | None = None
    """The distribution that stands for it where the setting is empty."""
    window: str = ""
    """Versions of that distribution that work."""
    recognise: Callable[[str], str] | None = None
    """The contract alone, where `judge` refuses checkouts that keep one; None: `judge`."""
    needed_by: tuple[str, ...] = ()
    """Contracts of the engine's first checkout that need this one; empty: all."""

    @property
    def key(self) -> str:
        """The setting's name within its section."""
        return self.setting.rpartition(".")[2]

    def contract(self, home: str | None) -> str | None:
        """Return the contract of the checkout `home`; None if it matches no known one."""
        try:
            return (self.recognise or self.judge)(home) if home is not None else None
        except ConfigError:
            return None


@dataclass(frozen=True)
class Engine:
    """One engine. Where a function is told a run, it is told the run's configuration."""

    name: str
    stages: Callable[[Sections], tuple[Stage, ...]]
    """Its part of the graph, in order: from convert to export; mindformers': its sft stage."""
    rules: Rules[Any]
    """What a run must keep; asked of `subject`."""
    subject: Callable[[Sections, int], Any] = lambda run, cards_per_node: run
    """Of a run on nodes of so many cards."""
    programs: tuple[Program, ...] = ()
    checkouts: tuple[Checkout, ...] = ()
    """Repositories that it is run from; the first one's contract is the engine's, and a run needs it."""
    known: Mapping[str, Known] = field(default_factory=dict)
    """Contract of the first checkout -> what works with it; the first is assumed without one."""
    also: Callable[[Any], tuple[Window, ...]] = lambda settings: ()
    """Further distributions, by its settings; None: whatever these are."""
    imports: tuple[str, ...] = ()
    """Distributions without which none of its programs starts."""
    only_910: bool = False
    """Whether it refuses chips other than 910B and 910_93 itself."""
    unrehearsed: str = ""
    """Why nothing of it can be rehearsed on a CPU; empty: it can."""
    section: str = "engine"
    """The part of the configuration that holds its settings."""
    derive: Callable[[dict[str, Any]], None] = lambda values: None
    """Fills in what follows from its own settings, in the whole plain configuration. Raises KeyError or
    TypeError on values of a wrong type, which are reported when they are read."""
    needs: Callable[[Sections], Iterable[Problem]] = lambda run: ()
    """What a run needs besides the first checkout, and plan and --dry-run do without."""
    cards: Callable[[Sections], int] | None = None
    """Cards that it occupies, where these are not the run's."""
    notes: Callable[[Sections], Iterable[str]] = lambda run: ()
    """What a plan should say besides its stages."""
    memory: Callable[[Sections], tuple[RoleMemory, ...]] = lambda run: ()
    """The estimate of each role, of one card or worker."""
    shortage: Callable[[Sections, Sequence[RoleMemory], int], list[str]] = lambda run, roles, have: []
    """What may not fit, and by how much; of this machine's memory it is told the bytes."""
    load: Callable[[Sections, int], Load] | None = None
    """What layouts are ranked by; told the bytes of this machine's memory."""
    leftover: Callable[[Mapping[str, Any], ModelConfig], Leftover | None] = lambda settings, model: None
    """What it leaves of the stop token in the text that it rewards, by its section's plain values."""
    unearnable: Callable[[Any], Iterable[Problem]] | None = None
    """What is wrong with its own prompts and rewards, by its settings; None: the run's are what it takes."""

    def settings(self, run: Sections) -> Any:
        """Return the section that configures the engine."""
        return getattr(run, self.section)

    def needed(self, contract: str | None) -> tuple[Checkout, ...]:
        """Return the checkouts that a contract needs; None stands for the assumed contract."""
        version = contract or next(iter(self.known), "")
        return tuple(
            checkout for checkout in self.checkouts if not checkout.needed_by or version in checkout.needed_by
        )

    def works_with(self, contract: str | None) -> Known:
        """Return what a contract is known to work with; None stands for the assumed contract."""
        return self.known.get(contract or "", next(iter(self.known.values())))

    def homes(self, run: Sections) -> dict[str, str | None]:
        """Return the directory of every checkout whose code a run executes, by setting."""
        settings = self.settings(run)
        needed = self.needed(getattr(settings, "contract", None))
        return {checkout.setting: getattr(settings, checkout.key) for checkout in needed}

    def lacks(self, run: Sections) -> Iterator[Problem]:
        """Yield what a run needs and `plan` and `--dry-run` do not, apart from machines."""
        for first in self.checkouts[:1]:
            if getattr(self.settings(run), first.key) is None:
                yield Problem(
                    first.setting, None, f"is required to run: {first.wanted}", "give its directory"
                )
        yield from self.needs(run)
