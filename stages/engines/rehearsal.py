"""What a rehearsal says: one proof after another."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

State = Literal["proven", "failed", "unproven"]


@dataclass(frozen=True)
class Proof:
    """One thing that a run relies on."""

    what: str
    """What was to be shown, in a few words."""
    state: State
    """proven: it was seen; failed: it was seen not to hold; unproven: this machine cannot show it."""
    told: str
    """What was seen, with figures; of a failure its likely cause; of what is unproven why."""
