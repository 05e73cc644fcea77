"""Known failures, as failures.yaml lists them; diagnosis applies them."""

import functools
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import yaml

TABLE = Path(__file__).with_name("failures.yaml")


@dataclass(frozen=True)
class Failure:
    """One known failure."""

    name: str
    sign: str
    """What a reader sees, for the page of troubles."""
    pattern: str
    """Regular expression; ^ and $ stand for a line's ends."""
    cause: str
    remedy: str
    kind: Literal["cause", "follows", "end"] = "cause"
    """follows: told by a process that waited for another one, which has the cause. end: how a process ended,
    which says something only where nothing else does."""


TOLD = Failure("told", "error: …", r"^error: (?!node )(?P<text>.+)$", "{text}", "")
"""What a program of ours says itself, with its remedy."""


@functools.cache
def failures() -> tuple[Failure, ...]:
    """All of them; of several that a log matches, the first one tells most."""
    entries: list[dict[str, Any]] = yaml.safe_load(TABLE.read_text(encoding="utf-8"))
    for entry in entries:
        if isinstance(entry["pattern"], list):
            entry["pattern"] = "|".join(entry["pattern"])
    return (*(Failure(**entry) for entry in entries), TOLD)


def fill(text: str, match: re.Match[str]) -> str:
    """`text` with the groups of a match; what did not take part stays a question mark."""
    return text.format(**{name: value or "?" for name, value in match.groupdict().items()})
