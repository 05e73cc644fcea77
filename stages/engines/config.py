"""What every engine needs to be told that is a program of its own."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Literal

from stages.base.bounds import PositiveFloat
from stages.base.identity import NotInIdentity


@dataclass(frozen=True)
class OutsideProgram:
    """Settings of an outside program that depend on this machine."""

    python: Annotated[str | None, NotInIdentity(every_node=True)]
    """Interpreter with the program's packages, by path or name, or a script around one; null: the first
    python on PATH that is not grpoflow's."""
    env_scripts: Annotated[tuple[str, ...], NotInIdentity(every_node=True)]
    """Shell files sourced before the start, in the child only: CANN's and ATB's set_env.sh."""
    env: Annotated[Mapping[str, str], NotInIdentity()]
    """Variables added to its environment."""
    container: Annotated[tuple[str, ...], NotInIdentity()]
    """Command prefix that runs the start script elsewhere, for example [docker, exec, NAME]; empty: none."""
    silence_timeout_s: Annotated[PositiveFloat | None, NotInIdentity()]
    """A run whose workers write no line for so many seconds is stopped as hung; null: never."""


@dataclass(frozen=True)
class OutsideEngine(OutsideProgram):
    """The same of one that runs grpo."""

    sft: Annotated[Literal["off", "mindformers"], NotInIdentity()]
    """Supervised training before everything else: none, or by mindformers (section mindformers)."""
    name: str
    """The engine's name, a Literal in each engine's own settings."""
