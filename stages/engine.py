"""What an engine is: one object that says all that graph, identity, checks, launch and doctor ask of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

from stages.errors import ConfigError, Problem
from stages.layout import ROLES
from stages.rules import Rules

if TYPE_CHECKING:
    from stages.memory import RoleMemory
    from stages.model_config import ModelConfig
    from stages.rewards.probe import Leftover
    from stages.sections import Sections

T = TypeVar("T")
Window = tuple[str, str, str]
"""Distribution, versions that work (empty: any), why."""


@dataclass(frozen=True)
class Program:
    """Somebody else's program that does a stage's work."""

    name: str
    module: str
    """Holds the functions of stages.engines.base.Program; imported only when it is needed."""
    version: int
    """Code version, raised by hand whenever the stage's output changes for the same input."""
    on_ray: bool = False
    """Whether Ray is started around it, instead of msrun."""


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
    program: Program | None = None
    """Does the work: its `prepare` writes its files, launch runs it, its `collect` brings the result home.
    None: `python -m stages NAME`."""


@dataclass(frozen=True)
class Load:
    """What a layout is judged by."""

    tokens: int
    """Tokens that training computes in one step."""
    updates: int
    """Optimizer updates in one step."""
    available: int
    """Bytes that a card, or a worker of this machine, may occupy."""


@dataclass(frozen=True)
class Known:
    """What an engine was seen to work with."""

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
        """The contract that `home` keeps; None: none that is known."""
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
        """The section that configures it."""
        return getattr(run, self.section)

    def needed(self, contract: str | None) -> tuple[Checkout, ...]:
        """The checkouts that a contract needs; None: the one that is assumed."""
        kept = contract or next(iter(self.known), "")
        return tuple(one for one in self.checkouts if not one.needed_by or kept in one.needed_by)

    def works_with(self, contract: str | None) -> Known:
        """What a contract was seen to work with; None: the one that is assumed."""
        return self.known.get(contract or "", next(iter(self.known.values())))

    def homes(self, run: Sections) -> dict[str, str | None]:
        """Setting -> directory of every checkout whose code a run executes."""
        settings = self.settings(run)
        needed = self.needed(getattr(settings, "contract", None))
        return {one.setting: getattr(settings, one.key) for one in needed}

    def lacks(self, run: Sections) -> Iterator[Problem]:
        """What a run needs that plan and --dry-run do without; machines aside."""
        for first in self.checkouts[:1]:
            if getattr(self.settings(run), first.key) is None:
                yield Problem(
                    first.setting, None, f"is required to run: {first.wanted}", "give its directory"
                )
        yield from self.needs(run)


TOKENIZE = Stage(
    "tokenize", ("model", "dataset", "tokenize"), {"fetch": "fetch", "fetch_dataset": "fetch_dataset"}
)


def as_text(value: Any) -> Any:
    """A variable's text, which a number is, too; true is not, for it could mean 1."""
    return str(value) if type(value) in (int, float) else value


def rank_bytes(run: Sections, size: int | None = None) -> dict[str, int]:
    """Bytes of one role's rank directories, all ranks together.

    Args:
        run: its configuration.
        size: bytes of the whole model once; None: as it is fetched.
    """
    layouts = {role: run.layout.role(role) for role in ROLES}
    size = run.model.weight_bytes if size is None else size
    return {role: size * layout.data_parallel * layout.context_parallel for role, layout in layouts.items()}


def growth(run: Sections) -> int:
    """Factor by which weights grow that are fetched in 16 bits and trained in 32."""
    return 2 if run.model.param_init_type == "float32" and run.model.torch_dtype != "float32" else 1


def part(cls: type[T], run: Sections) -> T:
    """An object made of those sections of a run's configuration that its fields name."""
    return cls(**{field.name: getattr(run, field.name) for field in fields(cast(Any, cls))})
