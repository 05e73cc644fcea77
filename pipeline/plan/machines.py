"""Checks of the nodes on which a run's programs run."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from launch.config import LOOPBACK, LauncherConfig
from launch.errors import LaunchError
from launch.nodes import run as launch
from launch.nodes.start import script_words
from pipeline.errors import Problem
from stages.base.identity import on_every_node
from stages.engines import chosen
from stages.engines.engine import Engine

if TYPE_CHECKING:
    from pipeline.config.sections import Config

SLURM = ("sbatch", "squeue", "scancel", "scontrol")
"""Programs of Slurm that a run starts on this machine (launch/nodes/slurm.py)."""


def problems(config: Config, engine: Engine[Any], workers: int) -> Iterator[Problem]:
    """Yield a problem for each missing node, and for each file that a node is missing.

    `engine`, one of the run's, starts its programs on `workers` cards.
    """
    settings, section, launcher = engine.settings_of(config), engine.section, config.launcher
    joins_cluster = getattr(settings, "ray_address", None) is not None  # only its first node gets a script
    nodes = 1 if joins_cluster else len(launch.nodes_of(workers, launcher))
    if launcher.name == "local":
        yield from _local(launcher, settings.container, section)
        if nodes > 1:
            rule = f"needs {nodes} nodes of launcher.cards_per_node={launcher.cards_per_node} cards"
            yield Problem("cards", workers, rule, "choose launcher=ssh or launcher=slurm")
        return
    if launcher.name == "ray":
        yield from _ray(config, engine, nodes, workers)
        return
    if settings.container:
        remedy = "name hosts that are inside the containers" if launcher.name == "ssh" else "leave it empty"
        rule = f"is for launcher=local, not {launcher.name}"
        yield Problem(f"{section}.container", list(settings.container), rule, remedy)
    if launcher.name == "slurm":
        yield from slurm_problems()
    if launcher.name == "ssh":
        named = list(_named(launcher, nodes, workers))
        yield from named
        if not named:  # before hours are spent on inputs
            store = Path(config.store).absolute()
            hosts, paths = launcher.hosts[:nodes], node_paths(config)
            for host, problem in launch.missing(launcher.ssh, hosts, paths, store):
                yield Problem("launcher.hosts", host, problem, "correct it there, or name another host")


def queue_problems(launcher: LauncherConfig) -> Iterator[Problem]:
    """Yield a problem if this machine cannot submit jobs of stages."""
    if launcher.name == "slurm":
        yield from slurm_problems()
        return
    from launch.nodes import ray_job  # here: it imports requests

    try:
        ray_job.version(ray_job.address_of(launcher))
    except LaunchError as error:
        rule, remedy = f"must be the dashboard of a Ray cluster: {error}", "start the cluster, or correct it"
        yield Problem("launcher.ray_address", launcher.ray_address, rule, remedy)


def slurm_problems() -> Iterator[Problem]:
    """Yield a problem if a program of Slurm that a run starts is missing on this machine."""
    if missing := [name for name in SLURM if shutil.which(name) is None]:
        rule = f"needs {', '.join(missing)} on this machine"
        yield Problem("launcher", "slurm", rule, "start the run where jobs can be submitted")


def _ray(config: Config, engine: Engine[Any], nodes: int, workers: int) -> Iterator[Problem]:
    """Yield the problems of an engine whose programs run in Ray jobs, or here if their stages are no jobs."""
    launcher, settings, section = config.launcher, engine.settings_of(config), engine.section
    outside = [stage.name for stage in engine.stages(config) if stage.program is not None]
    if not all(map(launcher.runs_as_job, outside)):
        yield from _local(launcher, settings.container, section)
        if nodes > 1:
            rule = f"needs {nodes} nodes of launcher.cards_per_node={launcher.cards_per_node} cards"
            yield Problem("cards", workers, rule, "choose launcher=ssh or launcher=slurm")
    elif settings.container:
        rule, remedy = "is for launcher=local, not ray", "start the cluster's nodes in the container"
        yield Problem(f"{section}.container", list(settings.container), rule, remedy)


def _local(launcher: LauncherConfig, container: Sequence[str], section: str) -> Iterator[Problem]:
    """Yield the problems of a run whose programs run on this machine."""
    for key, name in (("hosts", "ssh"), ("sbatch", "slurm")):
        if value := getattr(launcher, key):
            rule = f"is for launcher={name}: this run would stay on this machine"
            yield Problem(f"launcher.{key}", list(value), rule, f"add launcher={name}, or leave it empty")
    if container and shutil.which(container[0]) is None:
        rule = "is no program that can be executed here"
        yield Problem(f"{section}.container", container[0], rule, "install it, or give its path")


def _named(launcher: LauncherConfig, nodes: int, workers: int) -> Iterator[Problem]:
    """Yield the problems of the ssh command and of the machines that launcher=ssh names."""
    hosts = launcher.hosts[:nodes]
    if len(hosts) < nodes:
        rule = f"must name {nodes} machines for {workers} cards"
        yield Problem("launcher.hosts", list(launcher.hosts), rule, f"name {nodes}")
    for number, host in enumerate(hosts):
        if host in hosts[:number]:
            yield Problem(f"launcher.hosts[{number}]", host, "is named twice", "name each machine once")
    first = hosts[0].rpartition("@")[2] if len(hosts) > 1 else ""
    if {first, launcher.master_addr} <= LOOPBACK:
        rule = "is no address by which other nodes can reach the first one"
        yield Problem("launcher.hosts[0]", hosts[0], rule, "give its name, or set launcher.master_addr")


def notes(config: Config) -> Iterator[str]:
    """Yield a note about the files that the nodes of a run must share."""
    nodes = len(launch.nodes_of(config.cards, config.launcher))
    if nodes < 2 or config.launcher.on_one_machine or config.engine.name == "local":
        return
    required = "".join(f"; each must have {path}" for path in node_paths(config))
    yield (
        f"{nodes} nodes: store={config.store} must be one directory for all, because workers read files that "
        f"workers of other nodes write{required}. The nodes are asked before any worker starts"
    )


def node_paths(config: Config) -> list[str]:
    """Return the paths that every node of the run must have; an interpreter may be a name."""
    sections: list[object] = [engine.settings_of(config) for engine in chosen(config)]
    sections += [config.evaluate] if config.evaluate.program == "vllm" else []
    paths = (path for section in sections for path in on_every_node(section))
    return list(dict.fromkeys(script_words(path)[0] for path in paths))
