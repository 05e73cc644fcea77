"""Description of a program and its nodes, which a stage creates for launch."""

from collections.abc import Mapping
from dataclasses import dataclass


def script_words(script: str) -> tuple[str, ...]:
    """Return file and arguments of a sourced script, as in /usr/local/Ascend/nnal/atb/set_env.sh --cxx_abi=0.

    Arguments are the words at the end that begin with a hyphen, so that a path may hold spaces.
    """
    words, arguments = script.split(" "), list[str]()
    while len(words) > 1 and words[-1].startswith("-"):
        arguments.insert(0, words.pop())
    return (" ".join(words), *arguments)


@dataclass(frozen=True)
class Ray:
    """Ray cluster of a program."""

    address: str | None
    """HOST:PORT of an existing cluster, which is left running. None to start one."""
    dashboard_port: int | None
    """Port on the first node's loopback; None for any free one."""
    options: tuple[str, ...]
    """More options of every `ray start`; they override grpoflow's."""
    wait_timeout_s: float
    """Time limit until all cards are registered."""
    resource: str = "NPU"
    """Name under which Ray counts the cards: NPU or GPU."""


@dataclass(frozen=True)
class Start:
    """Program of every worker, and its environment."""

    program: tuple[str, ...]
    """Python program and arguments, once per worker; with Ray once, on the first node."""
    workers: int
    """Processes under msrun; 0 to run the program once, on this machine. With Ray: number of cards."""
    python: str | None
    """Interpreter as a path or name; may be a wrapper script. None for the first python on PATH."""
    env: Mapping[str, str]
    python_path: tuple[str, ...]
    """Directories put before PYTHONPATH."""
    env_scripts: tuple[str, ...]
    """Scripts that are sourced first; see script_words."""
    container: tuple[str, ...]
    """Command prefix that runs the script elsewhere."""
    directory: str
    """Working directory of the workers, where they write output/ and caches."""
    resumable: tuple[str, ...] = ()
    """Python file and arguments that decide at every start: exit code 0 to resume, 3 to begin. May run on all
    nodes at once. Empty if the run always begins, or if the program decides."""
    again: tuple[str, ...] = ()
    """The program of a resumed run."""
    ray: Ray | None = None
    """None for msrun or a single process. The program connects to RAY_ADDRESS."""
    each_node: bool = False
    """True if the program runs once on each machine and starts the workers of that machine itself. It gets
    GRPOFLOW_FIRST_WORKER, their first rank, and GRPOFLOW_WORKERS, their number."""
