"""The class that every engine derives from: what it trains, renders, starts, refuses and needs.

An engine is one package. Its class answers questions about a run without touching a card; the modules that
`Stage.program` names start the outside program and import its results (stages/engines/outside.py).
"""

from __future__ import annotations

import shlex
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from stages.base.errors import Problem
from stages.base.graph import Program, Stage
from stages.base.layout import ROLES
from stages.engines import upstream_keys
from stages.engines.upstream_keys import Rendered, Schema

if TYPE_CHECKING:
    from stages.models.config import ModelConfig
    from stages.models.family import Family
    from stages.models.memory import RoleMemory
    from stages.rewards.probe import Leftover
    from stages.sections import Sections

J = TypeVar("J")
R = TypeVar("R", bound="Sections")
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
class Lock:
    """A complete environment: a pip requirements file, and how it is installed."""

    file: Path
    options: tuple[str, ...] = ()
    """Options of pip install."""
    variables: tuple[str, ...] = ()
    """NAME=VALUE of the environment of pip."""
    python: str = "python3.11"
    """Interpreter that the versions are for."""

    @property
    def command(self) -> str:
        """Shell command that installs it into the new directory ENV."""
        pip = [*self.variables, "ENV/bin/python", "-m", "pip", "install", *self.options]
        pip += ["--requirement", str(self.file)]
        return f"{self.python} -m venv ENV && {shlex.join(pip)}"


@dataclass(frozen=True)
class Environment:
    """Versions that an engine is known to work with."""

    packages: tuple[Window, ...] = ()
    cann: Window | None = None
    driver: Window | None = None
    lock: Lock | None = field(default=None, kw_only=True)


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


class Engine(ABC, Generic[J]):
    """One engine. `J` is its job: the typed configuration of a run, and the numbers that follow from it."""

    name: ClassVar[str]
    settings: ClassVar[type]
    """Dataclass of its settings: conf/engine/NAME.yaml."""
    section: ClassVar[str] = "engine"
    """Section of the configuration with its settings."""
    programs: ClassVar[tuple[Program, ...]] = ()
    """Outside programs that do the work of stages."""
    checkouts: ClassVar[tuple[Checkout, ...]] = ()
    """Repositories that it is run from. The contract of the first one is the engine's."""
    assumed_contract: ClassVar[str | None] = None
    """Contract that is assumed without a checkout."""
    imports: ClassVar[tuple[str, ...]] = ()
    """Distributions without which none of its programs starts."""
    rehearsal: ClassVar[str] = ""
    """Module with the functions of pipeline.rehearsal.Rehearsal; empty if it cannot be rehearsed on a CPU."""
    unrehearsed: ClassVar[str] = ""
    """Why it cannot be rehearsed."""
    keeps_tags: ClassVar[bool] = False
    """True if rewards read tags that are special tokens of the tokenizer, and a tag that the prompt opens."""
    logs_kl: ClassVar[bool] = False
    """True if the metrics of grpo hold `kl`, the KL to the reference, unless train.beta is 0."""
    has_agents: ClassVar[bool] = False
    """True if completions may have several turns (rollout.agent)."""
    own_rewards: ClassVar[bool] = False
    """True if it trains on prompts and rewards of its own, not on the run's."""
    rendered: ClassVar[Rendered] = {}
    """Keys of the program that `upstream` must not set, because grpoflow renders them (upstream_keys.py)."""

    @abstractmethod
    def trains(self, family: Family) -> bool:
        """Return True if it trains the models of a family."""

    @abstractmethod
    def stages(self, run: Sections) -> tuple[Stage, ...]:
        """Return the stages from convert to export in order; for mindformers its sft stage."""

    @abstractmethod
    def job(self, run: Sections) -> J:
        """Return the job of a run."""

    def derive(self, run: R) -> R:
        """Return the configuration with the values that follow from the engine's settings."""
        return run

    def problems(self, job: J) -> Iterator[Problem]:
        """Yield what the program would refuse, ignore silently or die of."""
        yield from ()

    def notes(self, job: J) -> Iterator[str]:
        """Yield what a user should know before the run starts, besides `all_notes`."""
        yield from ()

    def memory(self, job: J) -> tuple[RoleMemory, ...]:
        """Return the memory estimate of each role for one card or worker."""
        return ()

    def shortage(self, job: J, roles: Sequence[RoleMemory], have: int) -> list[str]:
        """Return warnings about roles that may not fit; `have` is this machine's memory in bytes."""
        return []

    def load(self, job: J, have: int) -> Load | None:
        """Return the work by which layouts are ranked; `have` is this machine's memory in bytes."""
        return None

    def environment(self, settings: Any) -> Environment:
        """Return the versions that work with these settings."""
        return Environment()

    def schema_script(self, job: J) -> tuple[str, ...] | None:
        """Return a script with arguments that prints the program's keys in its interpreter (Schema.parse)."""
        return None

    def schema(self, job: J) -> Schema | None:
        """Return the keys of the checkout's own configuration classes; None without a checkout."""
        return None

    def leftover(self, settings: Mapping[str, Any], model: ModelConfig) -> Leftover | None:
        """Return what its decoder leaves of a stop token in rewarded text; `settings` are plain values."""
        return None

    def reward_problems(self, settings: Any) -> Iterable[Problem]:
        """Return problems of the engine's own prompts and rewards."""
        return ()

    def settings_of(self, run: Sections) -> Any:
        """Return the section that configures the engine."""
        return getattr(run, self.section)

    def contract(self, run: Sections) -> str | None:
        """Return the contract of the first checkout; None if the engine has only one."""
        return getattr(self.settings_of(run), "contract", None)

    def needed(self, run: Sections) -> tuple[Checkout, ...]:
        """Return the checkouts that a run needs."""
        contract = self.contract(run)
        return tuple(
            checkout
            for checkout in self.checkouts
            if not checkout.needed_by or contract in checkout.needed_by
        )

    def all_problems(self, run: Sections) -> Iterator[Problem]:
        """Yield the problems of a run, first those of `upstream`."""
        added = getattr(self.settings_of(run), "upstream", {})
        yield from upstream_keys.rendered_problems(f"{self.section}.upstream", added, self.rendered)
        yield from self.problems(self.job(run))

    def all_notes(self, run: Sections) -> Iterator[str]:
        """Yield the notes for the plan: a missing checkout, those of the engine, and keys of `upstream`."""
        settings = self.settings_of(run)
        for first in self.checkouts[:1]:
            if getattr(settings, first.key) is None and first.package is None:
                assumed = self.contract(run) == self.assumed_contract is not None
                contract = f"contract {self.assumed_contract} is assumed; " if assumed else ""
                yield f"{first.setting} is not set: {contract}run refuses without it"
        yield from self.notes(self.job(run))
        yield from upstream_keys.notes(f"{self.section}.upstream", getattr(settings, "upstream", {}))

    def missing(self, run: Sections) -> Iterator[Problem]:
        """Yield the missing checkouts that a run needs; `plan` and `run --render` do without them."""
        settings = self.settings_of(run)
        for checkout in self.needed(run):
            if checkout.package is None and getattr(settings, checkout.key) is None:
                rule = f"is required to run: {checkout.description}"
                yield Problem(checkout.setting, None, rule, "give its directory")


def rank_bytes(run: Sections, size: int | None = None) -> dict[str, int]:
    """Return the bytes of each role's rank directories, summed over ranks, for models of `size` bytes.

    `size` is by default that of the fetched weights. An estimate, for stages that write such directories.
    """
    layouts = {role: run.layout.role(role) for role in ROLES}
    size = run.model.weight_bytes if size is None else size
    return {role: size * layout.data_parallel * layout.context_parallel for role, layout in layouts.items()}


def growth(run: Sections) -> int:
    """Return the factor by which weights grow that are fetched in 16 bits and trained in 32."""
    return 2 if run.model.param_init_type == "float32" and run.model.torch_dtype != "float32" else 1
