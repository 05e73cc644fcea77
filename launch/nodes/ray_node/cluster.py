"""Connection of the first node to the cluster, whose nodes and NPUs it watches."""

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

from .local_ray import POLL_S, Failed, LocalRay

REFRESH_S = 2.0
PROGRESS_S = 15.0


def reachable(address: str) -> bool:
    """Return True if a server listens at HOST:PORT."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=3.0).close()
    except OSError:
        return False
    return True


def connect(address: str, local_ray: LocalRay | None, deadline: float) -> Any:
    """Join the cluster as a driver that does no work; return the ray module."""
    try:
        ray = importlib.import_module("ray")
    except ImportError as error:
        raise Failed(f"ray is not installed for {sys.executable}: {error}") from error
    problem: object = "nothing listens there"
    while time.monotonic() <= deadline:
        if local_ray is not None:
            local_ray.check()
        if reachable(address):
            try:
                ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
                return ray
            except (ConnectionError, RuntimeError, ValueError) as error:  # its node is not registered yet
                problem = str(error) or type(error).__name__
                ray.shutdown()
        time.sleep(1.0)
    raise Failed(f"Ray at {address} does not answer: {problem}")


class Nodes:
    """The live nodes of the cluster, refreshed by a thread because a request may hang for a minute."""

    def __init__(self, ray: Any) -> None:
        self._ray = ray
        self.live: dict[str, dict[str, Any]] = self._request()
        threading.Thread(target=self._refresh, daemon=True).start()

    def _refresh(self) -> None:
        while True:
            time.sleep(REFRESH_S)
            with contextlib.suppress(Exception):  # keep the last answer
                self.live = self._request()

    def _request(self) -> dict[str, dict[str, Any]]:
        return {node["NodeID"]: node for node in self._ray.nodes() if node["Alive"]}


def wait(
    nodes: Nodes, options: argparse.Namespace, local_ray: LocalRay | None, deadline: float, log: Path
) -> dict[str, dict[str, Any]]:
    """Wait until all NPUs are registered; return the live nodes."""
    reported, next_report = "", 0.0
    while True:
        if local_ray is not None:
            local_ray.check()
        live = nodes.live
        names = {node["NodeName"] for node in live.values()}
        npus = sum(int(node["Resources"].get("NPU", 0)) for node in live.values())
        missing = [name for name in options.nodes.split(",") if name and name not in names]
        state = f"{npus} of {options.npus} NPUs are registered"
        state += f"; missing: {', '.join(missing)}" if missing else ""
        if state != reported or time.monotonic() > next_report:
            reported, next_report = state, time.monotonic() + PROGRESS_S
            report(f"ray: {state}", log)
        if npus >= options.npus and not missing:
            return live
        if time.monotonic() > deadline:
            raise Failed(f"after {options.wait_timeout_s:.0f} s {state}")
        time.sleep(POLL_S)


def nodes_lost(nodes: Iterable[dict[str, Any]]) -> Failed:
    """Return the error for nodes that are gone."""
    names = sorted(f"node {node['NodeName']} ({node['NodeManagerAddress']})" for node in nodes)
    return Failed(f"lost: {', '.join(names)}")


def report(text: str, log: Path | None) -> None:
    """Print a line, and append it to the log."""
    print(text, flush=True)
    if log is not None:
        with log.open("a", encoding="utf-8") as file:
            file.write(text + "\n")
