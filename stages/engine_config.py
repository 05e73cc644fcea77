"""Which trainer runs grpo, and what each needs to be told."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Literal

from annotated_types import Gt

from stages.identity import NotInIdentity


@dataclass(frozen=True)
class LocalEngine:
    """The embedded MindSpore trainer."""

    name: Literal["local"]
    """local: the embedded MindSpore trainer."""
    device_target: Literal["CPU", "Ascend", "GPU"]
    """What sft, grpo and evaluate compute on, as MindSpore's set_device names it; never run on any but CPU.
    Each of several workers takes the device that MindSpore's msrun gives it."""
    sft: Annotated[Literal["local", "mindformers"], NotInIdentity()]
    """Who does the supervised training before grpo: the embedded trainer (unless sft.enabled=false), or
    mindformers, before everything else (section mindformers). What it trains is grpo's input, with an
    identity of its own."""


@dataclass(frozen=True)
class OutsideProgram:
    """What every program that is not ours is told about this machine."""

    python: Annotated[str | None, NotInIdentity(every_node=True)]
    """Interpreter with the program's packages, by path or name, or a script around one; null: the first
    python on PATH that is not grpoflow's."""
    env_scripts: Annotated[tuple[str, ...], NotInIdentity(every_node=True)]
    """Shell files sourced before the start, in the child only: CANN's and ATB's set_env.sh."""
    env: Annotated[Mapping[str, str], NotInIdentity()]
    """Variables added to its environment."""
    container: Annotated[tuple[str, ...], NotInIdentity()]
    """Command prefix that runs the start script elsewhere, for example [docker, exec, NAME]; empty: none."""
    silence_timeout_s: Annotated[Annotated[float, Gt(0)] | None, NotInIdentity()]
    """A run whose workers write no line for so many seconds is stopped as hung; null: never."""


@dataclass(frozen=True)
class OutsideEngine(OutsideProgram):
    """What every engine that is a program of its own has."""

    sft: Annotated[Literal["off", "mindformers"], NotInIdentity()]
    """Supervised training before everything else: none, or by mindformers (section mindformers)."""
