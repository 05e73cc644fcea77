"""Checks of the nodes on which a run's programs run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from launch.nodes import run as launch
from pipeline.errors import Problem
from stages.base.identity import on_every_node
from stages.engines.declaration import Engine

if TYPE_CHECKING:
    from pipeline.config.sections import Config


def problems(config: Config, chosen: Sequence[Engine], engine: Engine, workers: int) -> Iterator[Problem]:
    """Yield a problem for each missing node, and for each file that a node is missing.

    Args:
        config: the run's configuration.
        chosen: all engines of the run.
        engine: the engine whose programs are started.
        workers: number of cards that it occupies.
    """
    launcher, container = config.launcher, engine.settings(config).container
    nodes, hosts = len(launch.nodes_of(workers, launcher)), launcher.hosts
    if launcher.name == "local" and nodes > 1:
        rule = f"needs {nodes} nodes of launcher.cards_per_node={launcher.cards_per_node} cards"
        yield Problem("cards", workers, rule, "choose launcher=ssh or launcher=slurm")
    if launcher.name == "ssh" and len(hosts) < nodes:
        rule = f"must name {nodes} machines for {workers} cards"
        yield Problem("launcher.hosts", list(hosts), rule, f"name {nodes}")
    if launcher.name != "local" and container:
        remedy = "name hosts that are inside the containers" if launcher.name == "ssh" else "leave it empty"
        rule = f"is for launcher=local, not {launcher.name}"
        yield Problem(f"{engine.settings_section}.container", list(container), rule, remedy)
    if launcher.name == "ssh" and len(hosts) >= nodes:  # before hours are spent on inputs
        store = Path(config.store).absolute()
        for host, problem in launch.missing(launcher, workers, node_paths(config, chosen), store):
            yield Problem("launcher.hosts", host, problem, "correct it there, or name another host")


def notes(config: Config, chosen: Sequence[Engine]) -> Iterator[str]:
    """Yield a note about the files that the nodes of a run must share."""
    nodes = len(launch.nodes_of(config.cards, config.launcher))
    if nodes < 2 or config.launcher.name == "local" or config.engine.name == "local":
        return
    required = "".join(f"; each must have {path}" for path in node_paths(config, chosen))
    yield (
        f"{nodes} nodes: store={config.store} must be one directory for all, because workers read files that "
        f"workers of other nodes write{required}. The nodes are asked before any worker starts"
    )


def node_paths(config: Config, chosen: Sequence[Engine]) -> list[str]:
    """Return the paths that every node of the run must have; an interpreter may be a name."""
    sections = [engine.settings(config) for engine in chosen]
    return list(dict.fromkeys(path for section in sections for path in on_every_node(section)))
