"""Start scripts of a program on Ray, which start a cluster or use an existing one.

They contain the `ray start` commands that one would type. ray_node.py, copied next to them, runs and
watches these commands.
"""

import hashlib
import json
import shutil
from pathlib import Path
from shlex import quote

from launch.nodes.scripts import FREE_PORT, Node, wrap
from launch.nodes.start import Ray, Start

RAY_NODE = "ray_node.py"
RAY_PORT = 6379
"""Default port of Ray, used for several nodes because a script cannot find a free one."""
ADDRESS_OF = "$(python -c 'import socket, sys; print(socket.gethostbyname(sys.argv[1]))' \"$MASTER_ADDR\")"
HAS_CLIENT = "$(python -c 'import grpc' 2>/dev/null && echo --ray-client-server-port=$(free_port) || true)"
"""ray[default] starts another server, whose default port is the same for all clusters of a machine."""


def scripts(
    start: Start, ray: Ray, nodes: list[Node], names: list[str], directory: Path, logs: Path
) -> list[str]:
    """Return the start scripts of the nodes, and copy ray_node into their directory."""
    directory.mkdir(parents=True, exist_ok=True)
    shutil.copy(Path(__file__).with_name(RAY_NODE), directory)
    return [_script(start, ray, node, nodes, names, directory, logs) for node in nodes]


def _script(
    start: Start, ray: Ray, node: Node, nodes: list[Node], names: list[str], directory: Path, logs: Path
) -> str:
    """Return the start script of one node: ray_node with its options, `ray start` and the program."""
    options = [f"--name={quote(names[node.rank])}", '--log-dir="$LOG_DIR"']
    options.append(f"--wait-timeout-s={ray.wait_timeout_s:g}")
    lines, start_ray = ["unset RAY_ADDRESS"], list[str]()
    if ray.address is None:
        options += ['--address="$MASTER_ADDR:$MASTER_PORT"', '--ray-dir="$RAY_DIR"']
        options.append(f"--nodes={quote(','.join(names))}")
        lines += _variables(ray, node, nodes, directory)
        start_ray = _ray_start(ray, node, names[node.rank])
    else:
        options.append(f"--address={quote(ray.address)}")
    program: list[str] = []
    if node.rank == 0:
        options.append(f"--npus={start.workers}")
        program = ["python", *map(quote, start.program)]
    parts = [" ".join(options), " ".join(["--", *start_ray])]
    parts += [" ".join(["--", *program])] if program else []
    lines.append(" \\\n  ".join([f"exec python {quote(str(directory / RAY_NODE))}", *parts]))
    return wrap(start, node, nodes, logs, *lines, port=RAY_PORT)


def _variables(ray: Ray, node: Node, nodes: list[Node], directory: Path) -> list[str]:
    digest = hashlib.sha256(str(directory).encode()).hexdigest()[:12]
    lines = [
        f"RAY_DIR=/tmp/grpoflow-ray-{digest}  # short, as there are sockets below it",
        f"free_port() {{ echo {FREE_PORT}; }}",
        "AGENT_PORT=$(free_port)",
        "export RAY_USAGE_STATS_ENABLED=0",
        "export RAY_prestart_worker_first_driver=0  # the first is ray_node, which has no work for any",
    ]
    if len(nodes) == 1:  # without the variable Ray replaces 127.0.0.1 by the machine's address
        lines += ["MASTER_ADDR=127.0.0.1", "export RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER=0"]
    else:
        lines.append(f"MASTER_ADDR={ADDRESS_OF}")
    if node.rank == 0:
        port = "$(free_port)" if ray.dashboard_port is None else str(ray.dashboard_port)
        lines += [f"DASHBOARD_PORT={port}", f"CLIENT={HAS_CLIENT}"]
    return lines


def _ray_start(ray: Ray, node: Node, name: str) -> list[str]:
    words = ["ray start --block", f"--node-name={quote(name)}"]
    if node.rank == 0:
        words += ['--head --port="$MASTER_PORT" --node-ip-address="$MASTER_ADDR" --temp-dir="$RAY_DIR/ray"']
        words += ['--dashboard-host=127.0.0.1 --dashboard-port="$DASHBOARD_PORT" $CLIENT']
    else:
        words += ['--address="$MASTER_ADDR:$MASTER_PORT" ${NODE_ADDR:+--node-ip-address="$NODE_ADDR"}']
    words.append(f"--resources='{json.dumps({'NPU': node.workers})}'")
    # the system chooses the workers' ports: two clusters that search may choose the same
    words.append('--min-worker-port=0 --max-worker-port=0 --dashboard-agent-listen-port="$AGENT_PORT"')
    return [" \\\n    ".join([*words, *map(quote, ray.options)])]
