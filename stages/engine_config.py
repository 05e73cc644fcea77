"""Which trainer runs grpo, and what each needs to be told."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Annotated, Literal

from annotated_types import Gt


@dataclass(frozen=True)
class LocalEngine:
    """The embedded MindSpore trainer."""

    name: Literal["local"]
    """local: the embedded MindSpore trainer."""


@dataclass(frozen=True)
class OutsideEngine:
    """What every engine that is a program of its own is told about this machine."""

    python: str | None
    """Interpreter with the engine's packages; null: the first python on PATH that is not grpoflow's."""
    env_scripts: tuple[str, ...]
    """Shell files sourced before the start, in the child only: CANN's and ATB's set_env.sh."""
    env: Mapping[str, str]
    """Variables added to the engine's environment."""
    container: tuple[str, ...]
    """Command prefix that runs the start script elsewhere, for example [docker, exec, NAME]; empty: none."""
    silence_timeout_s: Annotated[float, Gt(0)] | None
    """A run whose workers write no line for so many seconds is stopped as hung; null: never."""


HOMES = ("mindrlhf_home", "mindformers_home", "msadapter_home")
"""The engines' checkouts."""
LOCATIONS = (*(field.name for field in fields(OutsideEngine)), *HOMES)
"""Where and how an engine runs on this machine: no part of an artifact's identity."""
