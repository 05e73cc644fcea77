"""The part of a graph that is asked for, and what of it is built anew."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass

from pipeline.errors import ConfigError, Problem
from stages.base.graph import Stage


@dataclass(frozen=True)
class Target:
    """What is asked for; the whole graph, and nothing anew, unless told."""

    until: str | None = None
    """Every stage of the graph's order up to this one."""
    only: tuple[str, ...] = ()
    """These stages and what they read, directly or not."""
    force: tuple[str, ...] = ()
    """Built anew although the store has them; what reads them follows, since its inputs are others then."""

    @classmethod
    def of(cls, until: str | None, only: Sequence[str], force: Sequence[str]) -> Target:
        """From what is typed: options may be repeated, and hold several names with commas."""
        return cls(until, _names(only), _names(force))

    @property
    def is_part(self) -> bool:
        """Whether some stages are not asked for."""
        return self.until is not None or bool(self.only)

    def __str__(self) -> str:
        typed = [("--until", self.until or ""), ("--only", ",".join(self.only))]
        return " ".join(f"{option} {names}" for option, names in typed if names)

    def options(self) -> dict[str, str | None]:
        """Its parts as text, names with commas between, as `of` reads them."""
        return {"until": self.until, "only": ",".join(self.only), "force": ",".join(self.force)}

    def asked(self, graph: Sequence[Stage]) -> frozenset[str]:
        """The stages that are asked for.

        Raises:
            ConfigError: a name is no stage's or left out of this graph, or `force` names another.
        """
        problems = [] if not (self.until and self.only) else [_both(self.until)]
        typed = (
            ("--until", (self.until,) if self.until else ()),
            ("--only", self.only),
            ("--force", self.force),
        )
        for option, names in typed:
            problems += [problem for name in names if (problem := _unknown(option, name, graph))]
        if problems:
            raise ConfigError(problems)
        asked = self._chosen([stage for stage in graph if stage.skipped is None])
        for name in self.force:
            if name not in asked:
                remedy = f"ask for it, too, or leave out --force {name}"
                problems.append(Problem("--force", name, f"is not among what {self} asks for", remedy))
        if problems:
            raise ConfigError(problems)
        return asked

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


WHOLE = Target()


def _names(typed: Sequence[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name.strip() for text in typed for name in text.split(",") if name.strip()))


def _both(until: str) -> Problem:
    return Problem("--until", until, "cannot stand beside --only", "give one of them")


def _unknown(option: str, name: str, graph: Sequence[Stage]) -> Problem | None:
    names = [stage.name for stage in graph]
    if name not in names:
        near = difflib.get_close_matches(name, names, n=1)
        known = f"known: {', '.join(names)}"
        return Problem(option, name, "no such stage", f"did you mean {near[0]}? {known}" if near else known)
    why = graph[names.index(name)].skipped
    if why is None:
        return None
    running = [stage.name for stage in graph[: names.index(name)] if stage.skipped is None]
    remedy = (
        f"choose another stage: {running[-1]} is the one before it" if running else "choose another stage"
    )
    return Problem(option, name, f"is left out of this run: {why}", remedy)
