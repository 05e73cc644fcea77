"""Start scripts for an engine: plain bash, one per node, runnable by hand."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

MSRUN_PORT = 8118
"""msrun's own default port (mindspore 2.7.0), where a script cannot look for a free one: several nodes."""

_FREE = 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'
FREE_PORT = f"$(python -c '{_FREE}')"
"""In bash: a port that is free on the node where the script runs."""

MEETING = ("--master_addr=$MASTER_ADDR", "--master_port=$MASTER_PORT", "--log_dir=$LOG_DIR")
"""msrun's options that are known when a script runs."""


@dataclass(frozen=True)
class EngineStart:
    """What every worker runs, and around what."""

    program: tuple[str, ...]
    """The python program and its arguments."""
    workers: int
    """Under msrun; 0: the program runs alone, on this machine."""
    python: str | None
    """Interpreter, with msrun beside it; None: the first python on PATH."""
    env: Mapping[str, str]
    python_path: tuple[str, ...]
    """Put before PYTHONPATH."""
    env_scripts: tuple[str, ...]
    """Sourced first."""
    container: tuple[str, ...]
    """Command prefix that runs the script elsewhere."""
    directory: str
    """Working directory of the workers."""


@dataclass(frozen=True)
class Node:
    """One machine of a run."""

    rank: int
    address: str | None
    """None: not known when the script is written."""
    workers: int


def write_scripts(texts: Sequence[str], directory: Path) -> list[Path]:
    """Write node_0.sh, node_1.sh, ... and return them."""
    directory.mkdir(parents=True, exist_ok=True)
    written = []
    for rank, text in enumerate(texts):
        path = directory / f"node_{rank}.sh"
        path.write_text(text, encoding="utf-8")
        path.chmod(0o755)
        written.append(path)
    return written


def script(start: EngineStart, node: Node, nodes: Sequence[Node], logs: Path) -> str:
    """The start script of one node.

    MASTER_ADDR, MASTER_PORT and LOG_DIR in its environment win over what stands in it.
    """
    return wrap(start, node, nodes, logs, "exec " + " \\\n  ".join(map(_word, last_line(start, node, nodes))))


def wrap(
    start: EngineStart, node: Node, nodes: Sequence[Node], logs: Path, *last: str, port: int = MSRUN_PORT
) -> str:
    """A node's script that ends in `last`: environment, meeting place, logs and working directory before it.

    Args:
        start: what is started, see EngineStart.
        node: whose script it is.
        nodes: all of them.
        logs: default of LOG_DIR.
        last: lines of bash.
        port: where several nodes meet unless MASTER_PORT says otherwise.
    """
    several = len(nodes) > 1
    lines = [
        "#!/usr/bin/env bash",
        f"# Node {node.rank} of {len(nodes)}: workers {_ranks(node, nodes)} of {max(1, start.workers)}.",
        *(["# Run each on its node, with the same MASTER_ADDR and MASTER_PORT."] if several else []),
        *[f". {quote(file)}" for file in start.env_scripts],
        "set -eu",
        *[f"export {name}={quote(value)}" for name, value in start.env.items()],
    ]
    if start.python_path:
        joined = ":".join(start.python_path)
        lines.append(f"export PYTHONPATH={quote(joined)}${{PYTHONPATH:+:$PYTHONPATH}}")
    if start.python is not None:  # msrun and ray start whatever python stands first on PATH
        lines.append(f"export PATH={quote(str(Path(start.python).parent))}:$PATH")
    lines += [
        *(_meeting(nodes, port) if start.workers else []),
        f"export LOG_DIR=${{LOG_DIR:-{quote(str(logs))}}}",
        'mkdir -p "$LOG_DIR" ' + quote(start.directory),
        f"cd {quote(start.directory)}",
        *last,
    ]
    return "\n".join(lines) + "\n"


def last_line(start: EngineStart, node: Node, nodes: Sequence[Node]) -> list[str]:
    """What a node's script ends in: the program, under msrun or alone. MEETING stands for variables."""
    if start.workers == 0:
        return ["python", *start.program]
    return [
        "msrun",
        f"--worker_num={start.workers}",
        f"--local_worker_num={node.workers}",
        *([f"--node_rank={node.rank}"] if len(nodes) > 1 else []),
        *MEETING,
        "--join=True",
        "--cluster_time_out=600",
        *start.program,
    ]


def _word(part: str) -> str:
    """A word of a bash command; only MEETING's variables are expanded."""
    if part not in MEETING:
        return quote(part)
    option, _, variable = part.partition("=")
    return f'{option}="{variable}"'


def _meeting(nodes: Sequence[Node], port: int) -> list[str]:
    if len(nodes) == 1:
        return [
            "export MASTER_ADDR=${MASTER_ADDR:-127.0.0.1}",
            f"export MASTER_PORT=${{MASTER_PORT:-{FREE_PORT}}}",
        ]
    address = nodes[0].address
    default = f"-{address}" if address else "?set MASTER_ADDR to the address of node 0"
    return [
        f'export MASTER_ADDR="${{MASTER_ADDR:{default}}}"',
        f"export MASTER_PORT=${{MASTER_PORT:-{port}}}",
    ]


def _ranks(node: Node, nodes: Sequence[Node]) -> str:
    first = sum(other.workers for other in nodes if other.rank < node.rank)
    return f"{first} to {first + node.workers - 1}"


def quote(text: str) -> str:
    """One word of a bash command."""
    return shlex.quote(text)
