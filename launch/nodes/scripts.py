"""Start scripts for an engine: plain bash, one per node, runnable by hand."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from shlex import quote

from launch.nodes.start import Start

MSRUN_PORT = 8118
"""msrun's own default port (mindspore 2.7.0), where a script cannot look for a free one: several nodes."""

CHECK = r"""
lacking=0
lack() { echo "error: node $HOSTNAME: $1: $2" >&2; lacking=1; }
need() {  # a path, or the name of a program
  case "$1" in
    */*) [ -e "$1" ] || lack "$1" "must exist on every node, at the same path" ;;
    *) command -v "$1" >/dev/null || lack "$1" "must be a program on every node's PATH" ;;
  esac
}
whole() {  # nothing below it may be a link to what this node lacks
  need "$1"
  link=$(find -L "$1" -type l -print -quit 2>/dev/null)
  [ -z "$link" ] || lack "$link" "is a link to $(readlink "$link"), which must exist on every node"
}
if [ -n "${SHARED:-}" ] && ! { [ -e "$SHARED" ] && [ -w "${SHARED%/*}" ]; }; then
  lack "${SHARED%/*}" "must be one directory for all nodes, writable on each, because workers read files \
that workers of other nodes write; choose store= on a file system that the nodes share"
  exit 1
fi
""".strip()
"""Does this node have what a run needs? SHARED is a file that whoever starts the nodes has just made."""

NAMED = r"""
interpreter=$(command -v "$named") || {
  echo "error: node $HOSTNAME: engine.python: $named: is no program here" >&2
  exit 1
}
case "$interpreter" in /*) ;; *) interpreter=$PWD/$interpreter ;; esac
tools=$("$interpreter" -c 'import sysconfig; print(sysconfig.get_path("scripts"))') || {
  echo "error: node $HOSTNAME: engine.python: $interpreter: does not run" >&2
  exit 1
}
mkdir -p "$LOG_DIR/bin"
bin=$(cd "$LOG_DIR/bin" && pwd)
for name in python python3; do  # msrun and Ray start whatever python stands first on PATH
  new=$bin/.$name.$HOSTNAME.$$  # nodes may share the directory
  printf '#!/usr/bin/env bash\nexec %q "$@"\n' "$interpreter" >"$new"
  chmod 755 "$new"
  mv -f "$new" "$bin/$name"
done
export PATH="$bin:${interpreter%/*}${tools:+:$tools}:$PATH"
""".strip()
"""Make `python` the interpreter that was named, whatever its file is called, with msrun and ray beside it or
where it installs them. A link would not do: Python looks for its environment beside the name it has."""

END = r"""
end() {  # whatever ended or stopped it, no worker outlives it
  trap '' TERM INT HUP
  kill -TERM $(left) 2>/dev/null || true
  for _ in $(seq 50); do [ -n "$(left)" ] || break; sleep 0.1; done
  while pids=$(left); [ -n "$pids" ]; do kill -KILL $pids 2>/dev/null || true; sleep 0.1; done
  exit "$1"
}
trap 'end 143' TERM INT HUP
""".strip()
"""`left` is defined by _alone."""

PROGRAM = '"${program[@]}"'
"""Stands for the program in a script that decides about it when it runs."""

_FREE = 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'
FREE_PORT = f"$(python -c '{_FREE}')"
"""In bash: a port that is free on the node where the script runs."""

MEETING = ("--master_addr=$MASTER_ADDR", "--master_port=$MASTER_PORT", "--log_dir=$LOG_DIR")
"""msrun's options that are known when a script runs."""


@dataclass(frozen=True)
class Node:
    """One machine of a run."""

    rank: int
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


def script(start: Start, node: Node, nodes: Sequence[Node], logs: Path) -> str:
    """The start script of one node.

    MASTER_ADDR, MASTER_PORT and LOG_DIR in its environment win over what stands in it.
    """
    words = ["env", mark(logs, node), *last_line(start, node, nodes, (PROGRAM,))]
    line = " \\\n  ".join(map(_word, words))
    return wrap(start, node, nodes, logs, *_program(start), END, line + " &", "wait $! || end $?", "end 0")


def mark(logs: Path, node: Node) -> str:
    """The variable by which a node's processes are found; the script does not export it to its own tools.

    It names where the logs of all attempts at one artifact are: programs that run in their own checkout share
    the working directory with other runs.
    """
    return f"GRPOFLOW_NODE={logs.parent} {node.rank}"


def wrap(
    start: Start, node: Node, nodes: Sequence[Node], logs: Path, *last: str, port: int = MSRUN_PORT
) -> str:
    """A node's script that ends in `last`: environment, meeting place, logs and working directory before it.

    With the argument `check` it only looks whether the node has what the run needs. It may be started again
    after any end.

    Args:
        start: what is started, see Start.
        node: whose script it is.
        nodes: all of them.
        logs: default of LOG_DIR.
        last: lines of bash.
        port: where several nodes meet unless MASTER_PORT says otherwise.
    """
    several = len(nodes) > 1
    ranks = _ranks(node, nodes)
    lines = [
        "#!/usr/bin/env bash",
        f"# Node {node.rank} of {len(nodes)}: workers {ranks[0]} to {ranks[1]} of {max(1, start.workers)}.",
        *(["# Run each on its node, with the same MASTER_ADDR and MASTER_PORT."] if several else []),
        *check(start),
        '[ "${1:-}" != check ] || exit "$lacking"',
        '[ "$lacking" = 0 ] || exit 1',
        *[f". {quote(file)}" for file in start.env_scripts],
        "set -eu",
        *[f"export {name}={quote(value)}" for name, value in start.env.items()],
    ]
    if start.python_path:
        joined = ":".join(start.python_path)
        lines.append(f"export PYTHONPATH={quote(joined)}${{PYTHONPATH:+:$PYTHONPATH}}")
    lines += [
        f"export LOG_DIR=${{LOG_DIR:-{quote(str(logs))}}}",
        'mkdir -p "$LOG_DIR" ' + quote(start.directory),
        *([] if start.python is None else [f"named={quote(start.python)}", NAMED]),
        *(_meeting(nodes, port) if start.workers else []),
        f"cd {quote(start.directory)}",
        *_alone(mark(logs, node), *ranks),
        *last,
    ]
    return "\n".join(lines) + "\n"


def check(start: Start) -> list[str]:
    """The lines that look whether a node has what the run needs."""
    names = [part.partition("=")[2] if part.startswith("--") else part for part in start.program[1:]]
    read = [name for name in names if name.startswith("/") and Path(name).exists()]  # the others are made
    return [
        CHECK,
        *[f"need {quote(path)}" for path in installed(start)],
        *[f"whole {quote(path)}" for path in dict.fromkeys(read)],
    ]


def installed(start: Start) -> list[str]:
    """What every node must have of its own or see; the program first."""
    paths = [path for path in (start.program[0], *start.python_path, *start.env_scripts) if path[:1] == "/"]
    return paths if start.python is None else [*paths[:1], start.python, *paths[1:]]


def _alone(marked: str, first: int, last: int) -> list[str]:
    """End what an earlier start left here (msrun's workers outlive it), and keep its logs."""
    return [
        f"left() {{ grep -lzxF {quote(marked)} /proc/[0-9]*/environ 2>/dev/null | cut -d/ -f3; }}",
        'while pids=$(left); [ -n "$pids" ]; do kill -KILL $pids 2>/dev/null || true; sleep 0.1; done',
        f"for log in {'' if first else 'scheduler '}worker_{{{first}..{last}}}; do",
        '  [ -e "$LOG_DIR/$log.log" ] || continue',
        '  mkdir -p "$LOG_DIR/earlier"',
        '  mv "$LOG_DIR/$log.log" "$LOG_DIR/earlier/$log-$(date -r "$LOG_DIR/$log.log" +%Y%m%dT%H%M%S).log"',
        "done",
    ]


def _program(start: Start) -> list[str]:
    """The array PROGRAM."""
    lines = [f"program=({_join(start.program)})"]
    if start.resumable:
        lines += [
            f"code=0; python {_join(start.resumable)} || code=$?",
            f"[ $code != 0 ] || program=({_join(start.again)})",
            "[ $code = 0 ] || [ $code = 3 ] || exit $code",
        ]
    return lines


def _join(parts: Sequence[str]) -> str:
    return " \\\n  ".join(quote(part) for part in parts)


def last_line(start: Start, node: Node, nodes: Sequence[Node], program: Sequence[str]) -> list[str]:
    """What a node's script ends in: the program, under msrun or alone. MEETING stands for variables."""
    if start.workers == 0:
        return ["python", *program]
    return [
        "msrun",
        f"--worker_num={start.workers}",
        f"--local_worker_num={node.workers}",
        *([f"--node_rank={node.rank}"] if len(nodes) > 1 else []),
        *MEETING,
        "--join=True",
        "--cluster_time_out=600",
        *program,
    ]


def _word(part: str) -> str:
    """A word of a bash command; only the variables of MEETING and PROGRAM are expanded."""
    if part == PROGRAM:
        return part
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
    return [
        'export MASTER_ADDR="${MASTER_ADDR:?set MASTER_ADDR to the address of node 0}"',
        f"export MASTER_PORT=${{MASTER_PORT:-{port}}}",
    ]


def _ranks(node: Node, nodes: Sequence[Node]) -> tuple[int, int]:
    """The first and the last worker of a node."""
    first = sum(other.workers for other in nodes if other.rank < node.rank)
    return first, first + node.workers - 1
