"""Start scripts of an engine: plain bash, one per node, which also work by hand."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from shlex import quote

from launch.nodes.start import Start

MSRUN_PORT = 8118
"""Default port of msrun (mindspore 2.7.0), used for several nodes because a script cannot find a free one."""

CHECK = r"""
missing=0
problem() { echo "error: node $HOSTNAME: $1: $2" >&2; missing=1; }
need() {  # a path, or the name of a program
  case "$1" in
    */*) [ -e "$1" ] || problem "$1" "must exist on every node, at the same path" ;;
    *) command -v "$1" >/dev/null || problem "$1" "must be a program on every node's PATH" ;;
  esac
}
need_tree() {  # a directory without links to files that this node is missing
  need "$1"
  link=$(find -L "$1" -type l -print -quit 2>/dev/null)
  [ -z "$link" ] || problem "$link" "is a link to $(readlink "$link"), which must exist on every node"
}
if [ -n "${SHARED:-}" ] && ! { [ -e "$SHARED" ] && [ -w "${SHARED%/*}" ]; }; then
  problem "${SHARED%/*}" "must be one directory for all nodes, writable on each, because workers read files \
that workers of other nodes write; choose store= on a file system that the nodes share"
  exit 1
fi
""".strip()
"""Bash code that checks a node's files and programs. SHARED is a file that the launcher has just created."""

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
for name in python python3; do  # msrun and Ray start the first python on PATH
  new=$bin/.$name.$HOSTNAME.$$  # nodes may share the directory
  printf '#!/usr/bin/env bash\nexec %q "$@"\n' "$interpreter" >"$new"
  chmod 755 "$new"
  mv -f "$new" "$bin/$name"
done
export PATH="$bin:${interpreter%/*}${tools:+:$tools}:$PATH"
""".strip()
"""Bash code that makes `python` the configured interpreter and puts its msrun and ray on PATH. It writes
scripts, not links, because Python looks for its virtual environment next to the path that was started."""

END = r"""
end() {  # no worker keeps running, however the script ends
  trap '' TERM INT HUP
  kill -TERM $(left) 2>/dev/null || true
  for _ in $(seq 50); do [ -n "$(left)" ] || break; sleep 0.1; done
  while pids=$(left); [ -n "$pids" ]; do kill -KILL $pids 2>/dev/null || true; sleep 0.1; done
  exit "$1"
}
trap 'end 143' TERM INT HUP
""".strip()
"""Bash code that ends all workers of the node; _end_earlier_start defines `left`."""

PROGRAM = '"${program[@]}"'
"""Placeholder of the program, which the script chooses when it runs."""

_FREE = 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'
FREE_PORT = f"$(python -c '{_FREE}')"
"""Bash expression for a free port of the node."""

ADDRESS_OPTIONS = ("--master_addr=$MASTER_ADDR", "--master_port=$MASTER_PORT", "--log_dir=$LOG_DIR")
"""Options of msrun whose values are variables of the script."""


@dataclass(frozen=True)
class Node:
    """One machine of a run, and its number of workers."""

    rank: int
    workers: int


def worker_ranks(node: Node, nodes: Sequence[Node]) -> range:
    """Return the ranks of a node's workers."""
    first = sum(each.workers for each in nodes if each.rank < node.rank)
    return range(first, first + node.workers)


def write_scripts(texts: Sequence[str], directory: Path) -> list[Path]:
    """Write node_0.sh, node_1.sh, ... and return their paths."""
    directory.mkdir(parents=True, exist_ok=True)
    written = []
    for rank, text in enumerate(texts):
        path = directory / f"node_{rank}.sh"
        path.write_text(text, encoding="utf-8")
        path.chmod(0o755)
        written.append(path)
    return written


def script(start: Start, node: Node, nodes: Sequence[Node], logs: Path) -> str:
    """Return the start script of one node.

    MASTER_ADDR, MASTER_PORT and LOG_DIR in its environment override its defaults.
    """
    words = ["env", _node_variable(logs, node), *last_line(start, node, nodes, (PROGRAM,))]
    line = " \\\n  ".join(map(_word, words))
    return wrap(start, node, nodes, logs, *_program(start), END, line + " &", "wait $! || end $?", "end 0")


def _node_variable(logs: Path, node: Node) -> str:
    """Return the variable that marks a node's processes; the script does not export it to its own tools.

    It contains the log directory of the artifact, because other runs may share the working directory.
    """
    return f"GRPOFLOW_NODE={logs.parent} {node.rank}"


def wrap(
    start: Start, node: Node, nodes: Sequence[Node], logs: Path, *last: str, port: int = MSRUN_PORT
) -> str:
    """Return a node's script that prepares environment, addresses, logs and directory and then runs `last`.

    With the argument `check` it only checks the node. It may be started again after any end.

    Args:
        start: program and environment.
        node: node of the script.
        nodes: all nodes.
        logs: default of LOG_DIR.
        last: lines of bash.
        port: default of MASTER_PORT for several nodes.
    """
    several = len(nodes) > 1
    ranks = worker_ranks(node, nodes)
    first, last_rank = ranks.start, ranks.stop - 1
    lines = [
        "#!/usr/bin/env bash",
        f"# Node {node.rank} of {len(nodes)}: workers {first} to {last_rank} of {max(1, start.workers)}.",
        *(["# Run each on its node, with the same MASTER_ADDR and MASTER_PORT."] if several else []),
        *check(start),
        '[ "${1:-}" != check ] || exit "$missing"',
        '[ "$missing" = 0 ] || exit 1',
        *[f". {quote(file)}" for file in start.env_scripts],
        "set -eu",
        *[f"export {name}={quote(value)}" for name, value in start.env.items()],
    ]
    if start.python_path:
        joined = ":".join(start.python_path)
        lines.append(f"export PYTHONPATH={quote(joined)}${{PYTHONPATH:+:$PYTHONPATH}}")
    lines += [
        f"export LOG_DIR=${{LOG_DIR:-{quote(str(logs))}}}",
        'export GRPOFLOW_LOG_DIR="$LOG_DIR"',  # for programs; those on Ray do not see LOG_DIR
        'mkdir -p "$LOG_DIR" ' + quote(start.directory),
        *([] if start.python is None else [f"named={quote(start.python)}", NAMED]),
        *(_addresses(nodes, port) if start.workers else []),
        f"cd {quote(start.directory)}",
        *_end_earlier_start(_node_variable(logs, node), first, last_rank),
        *last,
    ]
    return "\n".join(lines) + "\n"


def check(start: Start) -> list[str]:
    """Return lines of bash that check a node's files and programs."""
    names = [part.partition("=")[2] if part.startswith("--") else part for part in start.program[1:]]
    inputs = [name for name in names if name.startswith("/") and Path(name).exists()]  # not outputs
    return [
        CHECK,
        *[f"need {quote(path)}" for path in installed(start)],
        *[f"need_tree {quote(path)}" for path in dict.fromkeys(inputs)],
    ]


def installed(start: Start) -> list[str]:
    """Return the files and programs that every node must have, the program first."""
    paths = [path for path in (start.program[0], *start.python_path, *start.env_scripts) if path[:1] == "/"]
    return paths if start.python is None else [*paths[:1], start.python, *paths[1:]]


def _end_earlier_start(marked: str, first: int, last: int) -> list[str]:
    """Return lines that end processes of an earlier start on this node and move its logs to earlier/."""
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
    """Return lines that define the array PROGRAM."""
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
    """Return the words of a node's last command: the program, under msrun unless it runs without workers."""
    if start.workers == 0:
        return ["python", *program]
    return [
        "msrun",
        f"--worker_num={start.workers}",
        f"--local_worker_num={node.workers}",
        *([f"--node_rank={node.rank}"] if len(nodes) > 1 else []),
        *ADDRESS_OPTIONS,
        "--join=True",
        "--cluster_time_out=600",
        *program,
    ]


def _word(part: str) -> str:
    """Quote a word for bash; only the variables of ADDRESS_OPTIONS and PROGRAM are expanded."""
    if part == PROGRAM:
        return part
    if part not in ADDRESS_OPTIONS:
        return quote(part)
    option, _, variable = part.partition("=")
    return f'{option}="{variable}"'


def _addresses(nodes: Sequence[Node], port: int) -> list[str]:
    if len(nodes) == 1:
        return [
            "export MASTER_ADDR=${MASTER_ADDR:-127.0.0.1}",
            f"export MASTER_PORT=${{MASTER_PORT:-{FREE_PORT}}}",
        ]
    return [
        'export MASTER_ADDR="${MASTER_ADDR:?set MASTER_ADDR to the address of node 0}"',
        f"export MASTER_PORT=${{MASTER_PORT:-{port}}}",
    ]
