"""Whether the launcher has as many nodes as a program under msrun is to span."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from launch import engine as launch
from pipeline.errors import Problem

if TYPE_CHECKING:
    from pipeline.config import Config


def machines(config: Config, container: Sequence[str], path: str) -> Iterator[Problem]:
    """What is missing.

    Args:
        config: the run.
        container: command prefix of the program's start script.
        path: where that stands in the configuration.
    """
    launcher, nodes = config.launcher, len(launch.nodes_of(config.cards, config.launcher))
    if launcher.name == "local" and nodes > 1:
        rule = f"needs {nodes} nodes of launcher.cards_per_node={launcher.cards_per_node} cards"
        yield Problem("cards", config.cards, rule, "choose launcher=ssh or launcher=slurm")
    if launcher.name == "ssh" and len(launch.hosts_of(launcher)) < nodes:
        rule = f"must name {nodes} machines for cards={config.cards}"
        yield Problem("launcher.hosts", launch.hosts_of(launcher), rule, "or give hosts_file")
    if launcher.name == "ssh" and container:
        rule = "is for launcher=local: with ssh, name hosts that are inside the containers"
        yield Problem(path, list(container), rule)
