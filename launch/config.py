"""Typed launcher settings."""

from dataclasses import dataclass
from typing import Annotated, Literal

from annotated_types import Ge, Gt, Le


@dataclass(frozen=True)
class LauncherConfig:
    """How child processes start and end. Never part of a fingerprint: it changes no result."""

    name: Literal["local", "ssh", "slurm"]
    """local: processes on this machine, msrun for more than one worker. ssh, slurm: an engine's workers on
    several machines that share the store's file system; all other stages stay on this machine."""
    master_addr: str
    """Address that the workers of one job meet at; loopback unless several nodes take part."""
    master_port: Annotated[int, Ge(1024), Le(65535)] | None
    """Port of the meeting; None finds a free one, a given one that is in use is an error."""
    hosts: tuple[str, ...]
    """ssh: the machines, the first one's workers first."""
    hosts_file: str | None
    """ssh: a file with one machine per line, instead of hosts; what follows # is a remark."""
    ssh: tuple[str, ...]
    """The ssh command with its options."""
    sbatch: tuple[str, ...]
    """slurm: more options of the batch script, for example [--partition=npu]."""
    cards_per_node: Annotated[int, Ge(1)]
    """Cards of one machine; an engine with more workers takes several."""
    timeout_s: Annotated[float, Gt(0)] | None
    """Longest time that one stage may take; None is no limit."""
    grace_s: Annotated[float, Ge(0)]
    """Seconds between SIGTERM and SIGKILL when a stage is stopped."""
