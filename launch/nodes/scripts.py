"""Start scripts of an engine: plain bash, one per node, which also work by hand."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from shlex import quote

from launch.nodes.start import Start, script_words
from launch.process.child import SCHEDULER_VARIABLES

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

SUPERVISE = r"""
left() { grep -lzxF "$marked" /proc/[0-9]*/environ 2>/dev/null | cut -d/ -f3; }
kill_left() { while pids=$(left); [ -n "$pids" ]; do kill -KILL $pids 2>/dev/null || true; sleep 0.1; done; }
end() {  # no worker keeps running, however the script ends
  trap '' TERM INT HUP
  kill -TERM $(left) 2>/dev/null || true
  for _ in $(seq $((${GRACE_S:-10} * 10))); do [ -n "$(left)" ] || break; sleep 0.1; done
  kill_left
  [ -z "${watch:-}" ] || kill "$watch" 2>/dev/null || true
  exit "$1"
}
[ "${1:-}" != end ] || end 0
kill_left  # of an earlier start
trap 'end 143' TERM INT HUP
if [ -n "${HEARTBEAT_S:-}" ]; then
  exec 3<&0 </dev/null
  ( while read -r -n 1 -t "$HEARTBEAT_S" _ <&3; do :; done; kill -TERM $$ ) >/dev/null 2>&1 &
  watch=$!
fi
""".strip()
"""Bash code that ends all workers of the node when the script ends. With HEARTBEAT_S it also ends when
standard input closes or is silent for so many seconds, because ssh or the network has ended. `marked` is the
environment variable of the workers, which msrun starts in separate sessions."""

_FREE = 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'
FREE_PORT = f"$(python -c '{_FREE}')"
"""Bash expression for a free port of the node."""

PORT_CHECK = r"""
if (: <>"/dev/tcp/$MASTER_ADDR/$MASTER_PORT") 2>/dev/null; then
  echo "error: MASTER_PORT=$MASTER_PORT: $HOSTNAME uses this port already; run again, or choose another" >&2
  exit 1
fi
""".strip()
"""Bash code that refuses a port which another program listens on."""


@dataclass(frozen=True)
class Node:
    """One machine of a run, and its number of workers."""

    rank: int
    workers: int


def msrun_script(start: Start, node: Node, nodes: Sequence[Node], logs: Path) -> str:
    """Return the start script of one node for msrun, or for a single process."""
    words = ["python"]
    if start.workers:
        words = ["msrun", f"--worker_num={start.workers}", f"--local_worker_num={node.workers}"]
        words += [f"--node_rank={node.rank}"] if len(nodes) > 1 else []
        words += ['--master_addr="$MASTER_ADDR"', '--master_port="$MASTER_PORT"', '--log_dir="$LOG_DIR"']
        words += ["--join=True", "--cluster_time_out=600"]
    line = " \\\n  ".join([*words, '"${program[@]}"'])
    return node_script(start, node, nodes, logs, MSRUN_PORT, line, _program(start))


def each_node_script(start: Start, node: Node, nodes: Sequence[Node], logs: Path) -> str:
    """Return the start script of one node for a program that starts the node's workers itself."""
    first = sum(each.workers for each in nodes[: node.rank])
    numbers = {"GRPOFLOW_FIRST_WORKER": first, "GRPOFLOW_WORKERS": node.workers}
    lines = [f"export {name}={number}" for name, number in numbers.items()]
    line = 'python "${program[@]}"'
    return node_script(start, node, nodes, logs, MSRUN_PORT, line, [*_program(start), *lines])


def node_script(
    start: Start,
    node: Node,
    nodes: Sequence[Node],
    logs: Path,
    port: int,
    command: str,
    before: Sequence[str] = (),
) -> str:
    """Return a node's script that prepares environment, addresses, logs and directory and runs a command.

    With the argument `check` it only checks the node, with `end` it ends workers of an earlier start. It may
    be started again. Variables MASTER_ADDR, MASTER_PORT and LOG_DIR override its defaults, `port` (several
    nodes) and `logs`; the launcher also sets HEARTBEAT_S. `command` and the lines `before` it are bash.
    """
    several = len(nodes) > 1
    first = sum(each.workers for each in nodes[: node.rank])
    last = first + node.workers - 1
    lines = [
        "#!/usr/bin/env bash",
        f"# Node {node.rank} of {len(nodes)}: workers {first} to {last} of {max(1, start.workers)}.",
        *(["# Run each on its node, with the same MASTER_ADDR and MASTER_PORT."] if several else []),
        *check_lines(start),
        '[ "${1:-}" != check ] || exit "$missing"',
        '[ "$missing" = 0 ] || [ "${1:-}" = end ] || exit 1',
        # the log directory of the artifact, because other runs may share the working directory
        f"marked={quote(f'GRPOFLOW_NODE={logs.parent} {node.rank}')}",
        SUPERVISE,
        f"unset {' '.join(SCHEDULER_VARIABLES)}",  # of another job
        *[f". {' '.join(map(quote, script_words(script)))}" for script in start.env_scripts],
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
        *(_addresses(node, nodes, port) if start.workers and not start.each_node else []),
        f"cd {quote(start.directory)}",
        *_move_earlier_logs(first, last),
        *before,
        f'env "$marked" {command} &',
        "wait $! || end $?",
        "end 0",
    ]
    return "\n".join(lines) + "\n"


def check_lines(start: Start) -> list[str]:
    """Return lines of bash that check a node's files and programs, the program first."""
    sourced = [script_words(script)[0] for script in start.env_scripts]
    paths = [path for path in (start.program[0], *start.python_path, *sourced) if path[:1] == "/"]
    paths += [] if start.python is None else [start.python]
    names = [part.partition("=")[2] if part.startswith("--") else part for part in start.program[1:]]
    inputs = [name for name in names if name.startswith("/") and Path(name).exists()]  # not outputs
    return [
        CHECK,
        *[f"need {quote(path)}" for path in paths],
        *[f"need_tree {quote(path)}" for path in dict.fromkeys(inputs)],
    ]


def _move_earlier_logs(first: int, last: int) -> list[str]:
    """Return lines that move the logs of an earlier start of these workers to earlier/."""
    return [
        f"for log in {'' if first else 'scheduler '}worker_{{{first}..{last}}}; do",
        '  [ -e "$LOG_DIR/$log.log" ] || continue',
        '  mkdir -p "$LOG_DIR/earlier"',
        '  mv "$LOG_DIR/$log.log" "$LOG_DIR/earlier/$log-$(date -r "$LOG_DIR/$log.log" +%Y%m%dT%H%M%S).log"',
        "done",
    ]


def _program(start: Start) -> list[str]:
    """Return lines that define the array `program`, for a new or a resumed run."""
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


def _addresses(node: Node, nodes: Sequence[Node], port: int) -> list[str]:
    """Return lines that set MASTER_ADDR and MASTER_PORT; the first of several nodes checks the port."""
    if len(nodes) == 1:
        return [
            "export MASTER_ADDR=${MASTER_ADDR:-127.0.0.1}",
            f"export MASTER_PORT=${{MASTER_PORT:-{FREE_PORT}}}",
        ]
    return [
        'export MASTER_ADDR="${MASTER_ADDR:?set MASTER_ADDR to the address of node 0}"',
        f"export MASTER_PORT=${{MASTER_PORT:-{port}}}",
        *([PORT_CHECK] if node.rank == 0 else []),
    ]
