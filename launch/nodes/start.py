"""What is started on the nodes: plain values that a stage says and launch reads; a leaf, for both know it."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Ray:
    """The Ray that a program is run on."""

    address: str | None
    """HOST:PORT of a cluster that is there already: it is used and left running. None: one is started."""
    dashboard_port: int | None
    """On the first node's loopback; None: one that is free."""
    options: tuple[str, ...]
    """More options of every `ray start`; they win."""
    wait_timeout_s: float
    """Longest time until all NPUs are registered."""


@dataclass(frozen=True)
class Start:
    """What every worker runs, and around what."""

    program: tuple[str, ...]
    """The Python program and its arguments, once per worker; on Ray once, on the first node."""
    workers: int
    """Processes under msrun; 0: the program runs alone, on this machine. On Ray: NPUs that must be there."""
    python: str | None
    """Interpreter, by path or by name; a script around one will do. None: the first python on PATH."""
    env: Mapping[str, str]
    python_path: tuple[str, ...]
    """Put before PYTHONPATH."""
    env_scripts: tuple[str, ...]
    """Sourced first."""
    container: tuple[str, ...]
    """Command prefix that runs the script elsewhere."""
    directory: str
    """Working directory of the workers: they write output/ and caches there."""
    resumable: tuple[str, ...] = ()
    """Python file and arguments that say at every start whether the run goes on (exit code 0) or begins (3);
    it may run on all nodes at once. Empty: it always begins, or the program finds out itself."""
    again: tuple[str, ...] = ()
    """`program` of a run that goes on."""
    ray: Ray | None = None
    """Around the program, which joins it at RAY_ADDRESS; None: msrun, or nothing."""
