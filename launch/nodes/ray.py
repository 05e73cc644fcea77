"""Start scripts of a program on Ray, which start a cluster or use an existing one.

They run ray_node.py, which is copied next to them and reads ray.json.
"""

import hashlib
import json
import shutil
from pathlib import Path
from shlex import quote

from launch.nodes.scripts import Node, wrap
from launch.nodes.start import Ray, Start

RAY_NODE, SETTINGS = "ray_node.py", "ray.json"
RAY_PORT = 6379
"""Default port of Ray, used for several nodes because a script cannot find a free one."""


def scripts(
    start: Start, ray: Ray, nodes: list[Node], names: list[str], directory: Path, logs: Path
) -> list[str]:
    """Return the start scripts of the nodes; write ray_node.py and ray.json into their directory."""
    directory.mkdir(parents=True, exist_ok=True)
    shutil.copy(Path(__file__).with_name(RAY_NODE), directory)
    digest = hashlib.sha256(str(directory).encode()).hexdigest()[:12]
    settings = {
        "program": start.program,
        "npus": start.workers,
        "nodes": [{"name": name, "npus": node.workers} for name, node in zip(names, nodes, strict=True)],
        "address": ray.address,
        "dashboard_port": ray.dashboard_port,
        "options": ray.options,
        "wait_timeout_s": ray.wait_timeout_s,
        "directory": f"/tmp/grpoflow-ray-{digest}",  # noqa: S108 (short, as there are sockets below it)
    }
    (directory / SETTINGS).write_text(json.dumps(settings, indent=1), encoding="utf-8")
    command = f"python {quote(str(directory / RAY_NODE))} {quote(str(directory / SETTINGS))}"
    return [wrap(start, node, nodes, logs, RAY_PORT, f"{command} {node.rank}") for node in nodes]
