"""Known failures, read from failures.yaml and the tables that engines add."""

import functools
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

_tables = [Path(__file__).with_name("failures.yaml")]


@dataclass(frozen=True)
class Failure:
    """One known failure."""

    name: str
    sign: str
    """Text that a reader sees in the log, for docs/troubleshooting.md."""
    pattern: str
    """Regular expression; ^ and $ match at the ends of lines."""
    cause: str
    remedy: str
    program: Literal["mindrlhf", "verl", "mindspeed_rl", "mindspore", ""] = ""
    """Program in which it occurs, with mindspore for all that MindSpore runs; empty for any."""
    kind: Literal["cause", "follows", "end"] = "cause"
    """follows: reported by a process that waited for another one, which has the cause. end: how a process
    ended, which counts only if nothing else is known."""


GRPOFLOW_ERROR = Failure("told", "error: …", r"^error: (?!node )(?P<text>.+)$", "{text}", "")
"""An error message of grpoflow itself, which contains its remedy."""


def add(table: Path) -> None:
    """Add an engine's table, whose failures are looked for first."""
    if table not in _tables:
        _tables.insert(0, table)
        failures.cache_clear()


@functools.cache
def failures() -> tuple[Failure, ...]:
    """Load all tables; if a log matches several failures, the first one explains most."""
    import yaml  # takes 20 ms, which a run with nothing to do does without

    entries: list[dict[str, Any]] = []
    for table in _tables:
        entries += yaml.safe_load(table.read_text(encoding="utf-8"))
    for entry in entries:
        if isinstance(entry["pattern"], list):
            entry["pattern"] = "|".join(entry["pattern"])
    return (*(Failure(**entry) for entry in entries), GRPOFLOW_ERROR)
