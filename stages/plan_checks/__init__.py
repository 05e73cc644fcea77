"""Checks of a plan against existing files and artifacts, one module per package of stages.

A stage makes the same checks again when it runs, perhaps hours later.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Set
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from stages.base.errors import ConfigError, InputError, Problem

if TYPE_CHECKING:
    from stages.sections import Sections


@dataclass(frozen=True)
class Planned:
    """A plan as its stages' checks see it."""

    config: Sections
    artifacts: Mapping[str, Path]
    """Stage -> directory of its complete artifact."""
    pending: Set[str]
    """Requested stages that will run."""
    digest: Callable[[Path], str]
    """SHA-256 of a user's file; raises ConfigError if it cannot be read."""
    needs_weights: bool = True
    """False: model.path may hold config.json and tokenizer only."""
    is_local: bool = True
    """True if the stages run on this machine, which must have the user's files."""


PlanCheck = Callable[[Planned], Iterator[Problem]]
"""Function that yields the problems for which a stage would fail."""


def problems_of(check: Callable[[], object]) -> Iterator[Problem]:
    """Yield the problems that a check raises."""
    try:
        check()
    except ConfigError as error:
        yield from error.problems
    except InputError as error:
        yield error.problem
