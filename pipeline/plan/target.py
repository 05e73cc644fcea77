"""The requested part of a graph, and the stages that are rebuilt."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pipeline.config import suggestions
from pipeline.errors import ConfigError, Problem
from stages.base.graph import Stage


@dataclass(frozen=True)
class Target:
    """Requested stages; by default the complete graph, with nothing rebuilt."""

    until: str | None = None
    """All stages up to this one, in the graph's order."""
    only: tuple[str, ...] = ()
    """These stages and everything upstream of them."""
    force: tuple[str, ...] = ()
    """Stages to rebuild, with everything downstream, although the store has them."""

    @classmethod
    def parse(cls, until: str | None, only: Sequence[str], force: Sequence[str]) -> Target:
        """Return the target of options that may be repeated and contain several names separated by commas.

        Raises:
            ConfigError: a name is empty.
        """
        if until is not None:
            stage_names("--until", [until])
        return cls(until, stage_names("--only", only), stage_names("--force", force))

    @property
    def is_part(self) -> bool:
        """True if only a part of the graph is requested."""
        return self.until is not None or bool(self.only)

    def __str__(self) -> str:
        typed = [("--until", self.until or ""), ("--only", ",".join(self.only))]
        return " ".join(f"{option} {names}" for option, names in typed if names)

    def requested(self, graph: Sequence[Stage]) -> frozenset[str]:
        """Return the names of the requested stages.

        Raises:
            ConfigError: a name is unknown or skipped in this graph, or `force` names an unrequested stage.
        """
        if self.until and self.only:
            rule = "cannot be combined with --only"
            raise ConfigError([Problem("--until", self.until, rule, "give one of them")])
        until = (self.until,) if self.until else ()
        typed = (("--until", until), ("--only", self.only), ("--force", self.force))
        problems = [_unknown(option, name, graph) for option, names in typed for name in names]
        if known := [problem for problem in problems if problem is not None]:
            raise ConfigError(known)
        requested = self._chosen([stage for stage in graph if stage.skipped is None])
        if missing := [name for name in self.force if name not in requested]:
            rule, remedy = f"is not requested by {self}", "request it, too, or leave out --force"
            raise ConfigError([Problem("--force", name, rule, remedy) for name in missing])
        return requested

    def _chosen(self, running: Sequence[Stage]) -> frozenset[str]:
        names = [stage.name for stage in running]
        if self.until is not None:
            return frozenset(names[: names.index(self.until) + 1])
        if not self.only:
            return frozenset(names)
        needed = set(self.only)
        for stage in reversed(running):
            if stage.name in needed:
                needed |= set(stage.inputs.values())
        return frozenset(needed)


ALL_STAGES = Target()


def stage_names(option: str, texts: Sequence[str]) -> tuple[str, ...]:
    """Return the stage names of an option's values, which are separated by commas; refuse empty ones."""
    for text in texts:
        if not all(name.strip() for name in text.split(",")):
            remedy = f"name a stage, or leave out {option}"
            raise ConfigError([Problem(option, text, "holds an empty stage name", remedy)])
    return tuple(dict.fromkeys(name.strip() for text in texts for name in text.split(",")))


def _unknown(option: str, name: str, graph: Sequence[Stage]) -> Problem | None:
    names = [stage.name for stage in graph]
    if name not in names:
        return Problem(option, name, "no such stage", suggestions.nearest(name, names))
    why = graph[names.index(name)].skipped
    return None if why is None else Problem(option, name, f"is left out of this run: {why}", "name another")
