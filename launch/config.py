"""Typed launcher settings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from annotated_types import Ge, Gt, Le


@dataclass(frozen=True)
class LauncherConfig:
    """How child processes start and end. Never part of a fingerprint: it changes no result."""

    name: Literal["local"]
    """local: processes on this machine, msrun for more than one worker."""
    master_addr: str
    """Address that the workers of one job meet at; loopback unless several nodes take part."""
    master_port: Annotated[int, Ge(1024), Le(65535)] | None
    """Port of the meeting; None finds a free one, a given one that is in use is an error."""
    cards_per_node: Annotated[int, Ge(1)]
    """Cards of one machine; an engine with more workers takes several."""
    timeout_s: Annotated[float, Gt(0)] | None
    """Longest time that one stage may take; None is no limit."""
    grace_s: Annotated[float, Ge(0)]
    """Seconds between SIGTERM and SIGKILL when a stage is stopped."""
