"""Settings of engines that are external programs."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from stages.base.bounds import PositiveFloat
from stages.base.identity import NotInIdentity

UpstreamKeys = Mapping[str, Any]
"""Type of a section's `upstream`: keys that grpoflow does not model (stages/engines/upstream_keys.py)."""


@dataclass(frozen=True)
class OutsideProgram:
    """Settings of an outside program that depend on this machine."""

    python: Annotated[str | None, NotInIdentity(every_node=True)]
    """Interpreter with the program's packages: path, name, or a wrapper script; null: the first python on
    PATH that is not grpoflow's."""
    env_scripts: Annotated[tuple[str, ...], NotInIdentity(every_node=True)]
    """Shell files sourced before the start, in the child only: CANN's and ATB's set_env.sh. Arguments that
    begin with a hyphen may follow, as in "/usr/local/Ascend/nnal/atb/set_env.sh --cxx_abi=0"."""
    env: Annotated[Mapping[str, str], NotInIdentity()]
    """Environment variables of the program."""
    container: Annotated[tuple[str, ...], NotInIdentity()]
    """Command prefix that runs the start script elsewhere, for example [docker, exec, NAME]; empty: none."""
    silence_timeout_s: Annotated[PositiveFloat | None, NotInIdentity()]
    """Seconds without a line in any log after which a run is stopped as hung; null: never."""


@dataclass(frozen=True)
class OutsideEngine(OutsideProgram):
    """Settings of an engine that runs grpo."""

    sft: Annotated[Literal["off", "mindformers"], NotInIdentity()]
    """Supervised training before all other stages: none, or by mindformers (section mindformers)."""
    name: str
    """The engine's name, a Literal in each engine's own settings."""
    upstream: UpstreamKeys
    """More keys of the program's files; train.KEY with sft=mindformers: keys of mindformers' file."""
