"""The whole cluster, as the first node's driver sees it through Ray."""

from __future__ import annotations

import argparse
import contextlib
import importlib
import logging
import socket
import sys
import threading
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from .own import POLL_S, Failed, OwnRay

LOOK_S = 2.0
"""Between two looks at the nodes."""
PROGRESS_S = 15.0


def reachable(address: str) -> bool:
    """Whether something listens at HOST:PORT."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=3.0).close()
    except OSError:
        return False
    return True


def connect(address: str, own: OwnRay | None, deadline: float) -> Any:
    """The ray module, joined to the cluster as a driver that does no work."""
    try:
        ray = importlib.import_module("ray")
    except ImportError as error:
        raise Failed(f"ray is not installed for {sys.executable}: {error}") from error
    problem: object = "nothing listens there"
    while True:
        if own is not None:
            own.check()
        if reachable(address):
            try:
                ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
                return ray
            except (ConnectionError, RuntimeError, ValueError) as error:  # its node is not registered yet
                problem = str(error) or type(error).__name__
                ray.shutdown()
        if time.monotonic() > deadline:
            raise Failed(f"Ray at {address} does not answer: {problem}")
        time.sleep(1.0)


class Nodes:
    """The nodes that Ray takes for living, looked up beside: the question may hang for a minute."""

    def __init__(self, ray: Any) -> None:
        self._ray = ray
        self.living: dict[str, dict[str, Any]] = self._look()
        threading.Thread(target=self._follow, daemon=True).start()

    def _follow(self) -> None:
        while True:
            time.sleep(LOOK_S)
            with contextlib.suppress(Exception):  # no answer is no news
                self.living = self._look()

    def _look(self) -> dict[str, dict[str, Any]]:
        return {node["NodeID"]: node for node in self._ray.nodes() if node["Alive"]}


def wait(
    nodes: Nodes, options: argparse.Namespace, own: OwnRay | None, deadline: float, log: Path
) -> dict[str, dict[str, Any]]:
    """Wait for all NPUs; the nodes that are there then, as Nodes.living."""
    told, next_told = "", 0.0
    while True:
        if own is not None:
            own.check()
        living = nodes.living
        names = {node["NodeName"] for node in living.values()}
        npus = sum(int(node["Resources"].get("NPU", 0)) for node in living.values())
        missing = [name for name in options.nodes.split(",") if name and name not in names]
        text = f"{npus} of {options.npus} NPUs are registered"
        if missing:
            text += f"; missing: {', '.join(missing)}"
        if text != told or time.monotonic() > next_told:
            told, next_told = text, time.monotonic() + PROGRESS_S
            say(f"ray: {text}", log)
        if npus >= options.npus and not missing:
            return living
        if time.monotonic() > deadline:
            raise Failed(f"after {options.wait_timeout_s:.0f} s {text}")
        time.sleep(POLL_S)


def raylet(node: dict[str, Any]) -> str:
    """Where a node's own part of Ray listens."""
    return f"{node['NodeManagerAddress']}:{node['NodeManagerPort']}"


def nodes_lost(nodes: Iterable[dict[str, Any]]) -> Failed:
    """What ends a run whose nodes are gone."""
    names = sorted(f"node {node['NodeName']} ({node['NodeManagerAddress']})" for node in nodes)
    return Failed(f"lost: {', '.join(names)}")


def say(text: str, log: Path | None) -> None:
    """Tell it, in the log, too."""
    print(text, flush=True)
    if log is not None:
        with log.open("a", encoding="utf-8") as file:
            file.write(text + "\n")
