"""Declaration of an engine, from which graph, fingerprints, checks, launch and doctor are derived."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from stages.base.errors import Problem
from stages.base.graph import Program, Stage
from stages.base.rules import Rules
from stages.engines.engine import Checkout, Engine, Environment, Load, Window

if TYPE_CHECKING:
    from stages.models.config import ModelConfig
    from stages.models.family import Family
    from stages.models.memory import RoleMemory
    from stages.rewards.probe import Leftover
    from stages.sections import Sections


@dataclass(frozen=True)
class Known:
    """Versions and model shapes that an engine is known to work with."""

    packages: tuple[Window, ...]
    cann: Window
    driver: Window


@dataclass(frozen=True)
class Declaration:
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
    reward_problems: Callable[[Any], Iterable[Problem]] | None = None
    """Return problems of the engine's own prompts and rewards; None if it uses the run's."""


class Declared(Engine[Any]):
    """An engine that is still declared by functions and tables; its job is the run itself."""

    def __init__(self, declaration: Declaration) -> None:
        self.declared = declared = declaration
        values = {
            "name": declared.name,
            "section": declared.programs[0].section if declared.programs else "engine",
            "programs": declared.programs,
            "checkouts": declared.checkouts,
            "assumed_contract": next(iter(declared.known), None),
            "imports": declared.imports,
            "rehearsal": declared.rehearsal,
            "unrehearsed": declared.unrehearsed,
        }
        vars(self).update(values)

    def trains(self, family: Family) -> bool:
        """See Engine."""
        return self.declared.trains(family)

    def stages(self, run: Sections) -> tuple[Stage, ...]:
        """See Engine."""
        return self.declared.stages(run)

    def job(self, run: Any) -> Any:
        """See Engine."""
        return run

    def problems(self, job: Any) -> Iterator[Problem]:
        """See Engine."""
        launcher = getattr(job, "launcher", None)
        subject = self.declared.subject(job, launcher.cards_per_node if launcher else 8)
        yield from self.declared.rules.check(subject)

    def all_problems(self, run: Any) -> Iterator[Problem]:
        """See Engine."""
        yield from self.problems(run)

    def notes(self, job: Any) -> Iterator[str]:
        """See Engine."""
        yield from self.declared.notes(job)

    def all_notes(self, run: Any) -> Iterator[str]:
        """See Engine."""
        for first in self.checkouts[:1]:
            if getattr(self.settings(run), first.key) is None:
                known = next(iter(self.declared.known), None)
                contract = f"contract {known} is assumed; " if known and self.contract(run) == known else ""
                yield f"{first.setting} is not set: {contract}run refuses without it"
        yield from self.notes(run)

    def memory(self, job: Any) -> tuple[RoleMemory, ...]:
        """See Engine."""
        return self.declared.memory(job)

    def shortage(self, job: Any, roles: Sequence[RoleMemory], have: int) -> list[str]:
        """See Engine."""
        return self.declared.shortage(job, roles, have)

    def load(self, job: Any, have: int) -> Load | None:
        """See Engine."""
        return None if self.declared.load is None else self.declared.load(job, have)

    def environment(self, settings: Any) -> Environment:
        """See Engine."""
        known = self.declared.known
        found = known.get(getattr(settings, "contract", "") or "", next(iter(known.values()), None))
        optional = self.declared.optional_packages(settings)
        if found is None:
            return Environment(optional)
        return Environment((*found.packages, *optional), found.cann, found.driver)

    def leftover(self, settings: Mapping[str, Any], model: ModelConfig) -> Leftover | None:
        """See Engine."""
        return self.declared.leftover(settings, model)

    def reward_problems(self, settings: Any) -> Iterable[Problem] | None:
        """See Engine."""
        return None if self.declared.reward_problems is None else self.declared.reward_problems(settings)
