"""Typed launcher settings."""

from dataclasses import dataclass
from typing import Annotated, Literal

from annotated_types import Ge, Gt, Le

LOOPBACK = frozenset({"127.0.0.1", "localhost"})
"""Values of launcher.master_addr that stand for the address of the first node."""


@dataclass(frozen=True)
class LauncherConfig:
    """Settings for starting and ending processes. They change no result and enter no fingerprint."""

    name: Literal["local", "ssh", "slurm"]
    """local: processes on this machine, under msrun if there are several workers. ssh, slurm: an engine's
    workers on machines that share the store's file system; all other stages stay on this machine."""
    master_addr: str
    """Address where the workers of a job connect; loopback unless several nodes take part."""
    master_port: Annotated[int, Ge(1024), Le(65535)] | None
    """Port where they connect; None for any free one."""
    hosts: tuple[str, ...]
    """ssh: the machines, in the order of the workers."""
    ssh: tuple[str, ...]
    """The ssh command with its options."""
    sbatch: tuple[str, ...]
    """slurm: more options of the batch script, for example [--partition=npu]."""
    cards_per_node: Annotated[int, Ge(1)]
    """Cards of one machine; an engine with more workers takes several."""
    timeout_s: Annotated[float, Gt(0)] | None
    """Time limit of one stage; None for no limit."""
    grace_s: Annotated[float, Ge(0)]
    """Seconds between SIGTERM and SIGKILL when a stage is stopped."""
