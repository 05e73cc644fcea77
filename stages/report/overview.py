"""The list of runs and sweeps of a store, for `grpoflow ui`."""

from collections.abc import Sequence
from dataclasses import dataclass

from stages.report.templates import environment, own


@dataclass(frozen=True)
class ListedRun:
    """One run."""

    id: str
    name: str
    state: str
    """running, finished, failed, interrupted or died."""
    detail: str
    """The stage that failed; empty where none did."""
    started: float
    """Unix time, seconds."""
    took_s: float | None
    before: float | None
    """Held-out accuracies before and after GRPO, 0 to 1."""
    after: float | None
    overrides: str


@dataclass(frozen=True)
class ListedSweep:
    """One sweep."""

    id: str
    points: int
    finished: int
    best: float | None
    """Highest held-out accuracy after GRPO, 0 to 1."""
    written: float
    """Unix time, seconds."""
    overrides: str


def render(store: str, runs: Sequence[ListedRun], sweeps: Sequence[ListedSweep]) -> str:
    """The whole page as text; it asks for itself again every few seconds."""
    template = environment().get_template("overview.html")
    return template.render(store=store, runs=runs, sweeps=sweeps, style=own("style.css"))
