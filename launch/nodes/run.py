"""Runs of a program on its nodes, under msrun or on Ray, with start scripts that also work by hand."""

import contextlib
import functools
import hashlib
import json
import os
import shlex
import shutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from launch.config import LOOPBACK, LauncherConfig
from launch.errors import LaunchError
from launch.nodes import fan_out, slurm, slurm_job
from launch.nodes.scripts import CHECK, Node, each_node_script, msrun_script, node_script
from launch.nodes.start import Ray, Start
from launch.process import child
from launch.process.job import engine_environment

RAY_PORT = 6379
"""Default port of Ray, used for several nodes because a script cannot find a free one."""
SCRIPT_VARIABLES = frozenset({"MASTER_ADDR", "MASTER_PORT", "LOG_DIR", "SHARED", "HEARTBEAT_S", "GRACE_S"})
"""Variables that start scripts read."""


def write(start: Start, launcher: LauncherConfig, directory: Path, logs: Path) -> list[Path]:
    """Write one start script per node, and job.sbatch for Slurm; start nothing."""
    directory.mkdir(parents=True, exist_ok=True)
    nodes = _scripted_nodes(start, launcher)
    ray_command = "" if start.ray is None else _write_ray(start, start.ray, nodes, launcher, directory)
    written = [directory / f"node_{node.rank}.sh" for node in nodes]
    for node, path in zip(nodes, written, strict=True):
        if ray_command:
            text = node_script(start, node, nodes, logs, RAY_PORT, f"{ray_command} {node.rank}")
        else:
            script = each_node_script if start.each_node else msrun_script
            text = script(start, node, nodes, logs)
        new = path.with_suffix(".new")  # bash reads on in a script that somebody has started by hand
        new.write_text(text, encoding="utf-8")
        new.chmod(0o755)
        new.replace(path)
    if launcher.name == "slurm":
        batch, requeue = directory / "job.sbatch", bool(start.resumable)
        batch.write_text(slurm.batch_script(len(nodes), directory, logs, launcher, requeue), encoding="utf-8")
        written.append(batch)
    return written


def _write_ray(start: Start, ray: Ray, nodes: list[Node], launcher: LauncherConfig, directory: Path) -> str:
    """Write ray_node.py and ray.json, and return the command that runs a node's part, without its rank."""
    hosts = launcher.hosts if launcher.name == "ssh" else ()
    names = [hosts[node.rank] if node.rank < len(hosts) else f"node_{node.rank}" for node in nodes]
    digest = hashlib.sha256(str(directory).encode()).hexdigest()[:12]
    settings = {
        "program": start.program,
        "cards": start.workers,
        "resource": ray.resource,
        "nodes": [{"name": name, "cards": node.workers} for name, node in zip(names, nodes, strict=True)],
        "address": ray.address,
        "dashboard_port": ray.dashboard_port,
        "options": ray.options,
        "wait_timeout_s": ray.wait_timeout_s,
        "directory": f"/tmp/grpoflow-ray-{digest}",  # noqa: S108 (short, as there are sockets below it)
    }
    program, file = shutil.copy(Path(__file__).with_name("ray_node.py"), directory), directory / "ray.json"
    file.write_text(json.dumps(settings, indent=1), encoding="utf-8")
    return shlex.join(["python", str(program), str(file)])


def _scripted_nodes(start: Start, launcher: LauncherConfig) -> list[Node]:
    """Return the nodes that need a start script; only the first if an existing Ray cluster is used."""
    nodes = nodes_of(start.workers, launcher)
    return nodes[:1] if start.ray is not None and start.ray.address is not None else nodes


def nodes_of(workers: int, launcher: LauncherConfig) -> list[Node]:
    """Divide workers between nodes with launcher.cards_per_node each; at least one node."""
    workers = max(1, workers)
    per_node = min(workers, launcher.cards_per_node)
    count = -(-workers // per_node)
    return [Node(rank, min(per_node, workers - rank * per_node)) for rank in range(count)]


def run(
    start: Start,
    *,
    job: str,
    directory: Path,
    logs: Path,
    launcher: LauncherConfig,
    on_poll: Callable[[], None],
) -> child.Outcome:
    """Run a program to its end, on one or several machines.

    `directory` receives the start scripts, `logs` start.log and the workers' logs: msrun's worker_K.log; with
    Ray worker_0.log, with the output of the program and of its workers. See launch.process.child.

    Raises:
        LaunchError: the run could not start, failed or took too long.
    """
    write(start, launcher, directory, logs)
    line = command(start, job, directory, logs, launcher)
    begin = functools.partial(child.run, job=job, log=logs / "start.log", env=_environment(launcher))
    try:
        limit_s, grace_s = launcher.timeout_s, launcher.grace_s
        return begin(line, worker_logs=logs, timeout_s=limit_s, grace_s=grace_s, on_poll=on_poll)
    except BaseException:
        if start.container:  # docker exec passes on neither signals nor the job's variable
            with contextlib.suppress(LaunchError):
                begin([*line, "end"], timeout_s=60.0)  # 10 s of them are the workers' grace period
        raise


def _environment(launcher: LauncherConfig) -> dict[str, str]:
    """Return this process's environment without variables that scripts would take for the launcher's."""
    inherited = engine_environment(os.environ)
    variables = {name: value for name, value in inherited.items() if name not in SCRIPT_VARIABLES}
    if not launcher.on_one_machine:
        return variables
    port = {} if launcher.master_port is None else {"MASTER_PORT": str(launcher.master_port)}
    return {**variables, "MASTER_ADDR": launcher.master_addr, **port}


def command(start: Start, job: str, directory: Path, logs: Path, launcher: LauncherConfig) -> list[str]:
    """Return the command that runs the scripts of all nodes and ends when they have ended."""
    if launcher.on_one_machine or start.workers == 0:
        return [*start.container, "bash", str(directory / "node_0.sh")]
    if launcher.name == "slurm":
        script = str(directory / "job.sbatch")
        if slurm_job.is_inside(os.environ):
            return ["bash", script]  # on the nodes of the stage's own job
        return ["bash", "-c", slurm.SUBMIT, script, slurm.job_name(directory), str(logs)]
    plan = {
        "job": job,
        "hosts": launcher.hosts[: len(_scripted_nodes(start, launcher))],
        "ssh": launcher.ssh,
        "master_addr": None if launcher.master_addr in LOOPBACK else launcher.master_addr,
        "master_port": launcher.master_port,
        "directory": str(directory),
        "logs": str(logs),
        "grace_s": launcher.grace_s,
        "lost_s": fan_out.LOST_S,
    }
    file = directory / "fan_out.json"
    file.write_text(json.dumps(plan, indent=1), encoding="utf-8")
    return [sys.executable, str(Path(fan_out.__file__)), str(file)]


def missing(
    ssh: Sequence[str], hosts: Sequence[str], paths: Sequence[str], store: Path
) -> list[tuple[str, str]]:
    """Check machines of launcher=ssh; return pairs of machine and problem.

    Each must have the files and programs `paths`, and share the directory `store`, which may not exist yet.
    """
    if not hosts:
        return []
    existing = next(path for path in (store, *store.parents) if path.exists())
    text = "\n".join([CHECK, *[f"need {shlex.quote(path)}" for path in paths], 'exit "$missing"'])
    try:
        return fan_out.check(ssh, hosts, [text] * len(hosts), existing)
    except OSError as error:
        return [(hosts[0], f"{existing}: {error.strerror}; choose another store=")]
