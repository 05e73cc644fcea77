"""An engine's run on Ray: a cluster of our own, or one that is there already, around somebody else's program.

Same shape as launch.engine. The scripts start Ray themselves, `ray start` for `ray start` as one would by
hand; what waits, watches and ends beside it is ray_node.py.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from launch import engine, ray_node
from launch.config import LauncherConfig
from launch.nodes.scripts import FREE_PORT, EngineStart, Node, quote, wrap
from launch.process.child import Outcome

RAY_PORT = 6379
"""Ray's own default, where a script cannot look for a free one: several nodes."""
ADDRESS_OF = "$(python -c 'import socket, sys; print(socket.gethostbyname(sys.argv[1]))' \"$MASTER_ADDR\")"
HAS_CLIENT = "$(python -c 'import grpc' 2>/dev/null && echo --ray-client-server-port=$(free_port) || true)"
"""ray[default] starts a server more, at one port for all of a machine."""


@dataclass(frozen=True)
class RayStart:
    """What runs on the first node, and on which Ray."""

    engine: EngineStart
    """The program, which joins the Ray at RAY_ADDRESS; workers are NPUs that must be there."""
    address: str | None
    """HOST:PORT of a cluster that is there already: it is used and left running. None: one is started."""
    dashboard_port: int | None
    """On the first node's loopback; None: one that is free."""
    ray_options: tuple[str, ...]
    """More options of every `ray start`; they win."""
    wait_timeout_s: float
    """Longest time until all NPUs are registered."""


def write(start: RayStart, launcher: LauncherConfig, directory: Path, logs: Path) -> list[Path]:
    """Write one start script per node into `directory`, and job.sbatch for Slurm; nothing is started."""
    directory.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(ray_node.__file__, directory / "ray_node.py")
    nodes, names = nodes_of(start, launcher)
    texts = [script(start, node, nodes, names, directory, logs) for node in nodes]
    return engine.write_all(texts, launcher, directory, logs)


def run(
    start: RayStart,
    *,
    job: str,
    directory: Path,
    logs: Path,
    launcher: LauncherConfig,
    on_poll: Callable[[], None],
    silent_s: Callable[[], float],
    silence_timeout_s: float | None,
) -> Outcome:
    """Run an engine on Ray to its end, on this machine or on several.

    Args and exceptions are those of launch.engine.run; `logs` receives worker_0.log, in which stands what
    the program and, through Ray, its workers say, and how many NPUs are registered before it begins.
    """
    write(start, launcher, directory, logs)
    nodes, _ = nodes_of(start, launcher)
    return engine.follow(
        engine.start_nodes(start.engine, len(nodes), job, directory, logs, launcher),
        job=job,
        logs=logs,
        launcher=launcher,
        on_poll=on_poll,
        silent_s=silent_s,
        silence_timeout_s=silence_timeout_s,
    )


def nodes_of(start: RayStart, launcher: LauncherConfig) -> tuple[list[Node], list[str]]:
    """The nodes that get a script, and what they are called."""
    nodes = engine.nodes_of(start.engine.workers, launcher)
    if start.address is not None:
        nodes = nodes[:1]
    hosts = engine.hosts_of(launcher) if launcher.name == "ssh" else []
    return nodes, [hosts[node.rank] if node.rank < len(hosts) else f"node_{node.rank}" for node in nodes]


def first_line(start: RayStart, launcher: LauncherConfig) -> list[str]:
    """What the first node starts once Ray is complete, for a reader."""
    return [*start.engine.container, start.engine.python or "python", *start.engine.program]


def script(
    start: RayStart, node: Node, nodes: list[Node], names: list[str], directory: Path, logs: Path
) -> str:
    """The start script of one node: ray_node.py with its options, `ray start` and the program."""
    options = [f"--name={quote(names[node.rank])}", '--log-dir="$LOG_DIR"']
    options.append(f"--wait-timeout-s={start.wait_timeout_s:g}")
    lines, ray = ["unset RAY_ADDRESS"], []
    if start.address is None:
        options += ['--address="$MASTER_ADDR:$MASTER_PORT"', '--ray-dir="$RAY_DIR"']
        options.append(f"--nodes={quote(','.join(names))}")
        lines += _variables(start, node, nodes, directory)
        ray = _ray_start(start, node, names[node.rank])
    else:
        options.append(f"--address={quote(start.address)}")
    program: list[str] = []
    if node.rank == 0:
        options.append(f"--npus={start.engine.workers}")
        program = ["python", *map(quote, start.engine.program)]
    parts = [" ".join(options), " ".join(["--", *ray])]
    parts += [" ".join(["--", *program])] if program else []
    lines.append(" \\\n  ".join([f"exec python {quote(str(directory / 'ray_node.py'))}", *parts]))
    return wrap(start.engine, node, nodes, logs, *lines, port=RAY_PORT)


def _variables(start: RayStart, node: Node, nodes: list[Node], directory: Path) -> list[str]:
    digest = hashlib.sha256(str(directory).encode()).hexdigest()[:12]
    lines = [
        f"RAY_DIR=/tmp/grpoflow-ray-{digest}  # short, as there are sockets below it",
        f"free_port() {{ echo {FREE_PORT}; }}",
        "AGENT_PORT=$(free_port)",
        "export RAY_USAGE_STATS_ENABLED=0",
        "export RAY_prestart_worker_first_driver=0  # the first is ray_node.py, which has no work for any",
    ]
    if len(nodes) == 1:  # without the variable Ray takes the machine's own address for 127.0.0.1
        lines += ["MASTER_ADDR=127.0.0.1", "export RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER=0"]
    else:
        lines.append(f"MASTER_ADDR={ADDRESS_OF}")
    if node.rank == 0:
        port = "$(free_port)" if start.dashboard_port is None else str(start.dashboard_port)
        lines += [f"DASHBOARD_PORT={port}", f"CLIENT={HAS_CLIENT}"]
    return lines


def _ray_start(start: RayStart, node: Node, name: str) -> list[str]:
    words = ["ray start --block", f"--node-name={quote(name)}"]
    if node.rank == 0:
        words += ['--head --port="$MASTER_PORT" --node-ip-address="$MASTER_ADDR" --temp-dir="$RAY_DIR/ray"']
        words += ['--dashboard-host=127.0.0.1 --dashboard-port="$DASHBOARD_PORT" $CLIENT']
    else:
        words += ['--address="$MASTER_ADDR:$MASTER_PORT" ${NODE_ADDR:+--node-ip-address="$NODE_ADDR"}']
    words.append(f"--resources='{json.dumps({'NPU': node.workers})}'")
    # workers' ports are chosen by the system: two clusters that look for free ones may find the same
    words.append('--min-worker-port=0 --max-worker-port=0 --dashboard-agent-listen-port="$AGENT_PORT"')
    return [" \\\n    ".join([*words, *map(quote, start.ray_options)])]
