"""Whether the launcher has as many nodes as a program is to span."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from launch import engine as launch
from pipeline.errors import Problem

if TYPE_CHECKING:
    from pipeline.config import Config


def machines(
    config: Config, container: Sequence[str], path: str, workers: int | None = None
) -> Iterator[Problem]:
    """What is missing.

    Args:
        config: the run.
        container: command prefix of the program's start script.
        path: where that stands in the configuration.
        workers: cards that the program occupies; None: the run's.
    """
    workers = config.cards if workers is None else workers
    launcher, nodes = config.launcher, len(launch.nodes_of(workers, config.launcher))
    if launcher.name == "local" and nodes > 1:
        rule = f"needs {nodes} nodes of launcher.cards_per_node={launcher.cards_per_node} cards"
        yield Problem("cards", workers, rule, "choose launcher=ssh or launcher=slurm")
    if launcher.name == "ssh" and len(launch.hosts_of(launcher)) < nodes:
        rule = f"must name {nodes} machines for {workers} cards"
        yield Problem("launcher.hosts", launch.hosts_of(launcher), rule, "or give hosts_file")
    if launcher.name == "ssh" and container:
        rule = "is for launcher=local: with ssh, name hosts that are inside the containers"
        yield Problem(path, list(container), rule)
