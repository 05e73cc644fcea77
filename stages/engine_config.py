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
    device_target: Literal["CPU", "Ascend", "GPU"]
    """What sft, grpo and evaluate compute on, as MindSpore's set_device names it; never run on any but CPU.
    Each of several workers takes the device that MindSpore's msrun gives it."""
    sft: Literal["local", "mindformers"]
    """Who does the supervised training before grpo: the embedded trainer (unless sft.enabled=false), or
    mindformers, before everything else (section mindformers)."""


@dataclass(frozen=True)
class OutsideProgram:
    """What every program that is not ours is told about this machine."""

    python: str | None
    """Interpreter with the program's packages; null: the first python on PATH that is not grpoflow's."""
    env_scripts: tuple[str, ...]
    """Shell files sourced before the start, in the child only: CANN's and ATB's set_env.sh."""
    env: Mapping[str, str]
    """Variables added to its environment."""
    container: tuple[str, ...]
    """Command prefix that runs the start script elsewhere, for example [docker, exec, NAME]; empty: none."""
    silence_timeout_s: Annotated[float, Gt(0)] | None
    """A run whose workers write no line for so many seconds is stopped as hung; null: never."""


@dataclass(frozen=True)
class OutsideEngine(OutsideProgram):
    """What every engine that is a program of its own has."""

    sft: Literal["off", "mindformers"]
    """Supervised training before everything else: none, or by mindformers (section mindformers)."""


HOMES = ("mindrlhf_home", "mindformers_home", "msadapter_home", "mindspeed_rl_home")
"""The engines' checkouts, which every node of a run must have."""
LOCATIONS = (*(field.name for field in fields(OutsideProgram)), *HOMES)
"""Where and how an engine runs on this machine: no part of an artifact's identity."""
