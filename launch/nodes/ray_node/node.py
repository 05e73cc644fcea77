"""What a node does from its start to its end."""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from .cluster import Nodes, connect, nodes_lost, raylet, reachable, say, wait
from .own import POLL_S, Failed, OwnRay, adopt_orphans, end, own_ray

MEETING = ("MASTER_ADDR", "MASTER_PORT", "LOG_DIR")
"""Of the start scripts; trainers know the same names for other things."""


def main(arguments: Sequence[str]) -> int:
    """Run a node's part to its end; returns the exit code."""
    options, start, program = _parse(arguments)
    _catch_signals()
    adopt_orphans()
    for name in MEETING:
        os.environ.pop(name, None)
    log = Path(options.log_dir) / "worker_0.log" if program else None
    with contextlib.ExitStack() as ends:
        try:
            own = own_ray(options, start, ends) if start and log else None
            return _head(options, own, program, log, ends) if log else _other(options, start, ends)
        except Failed as failure:  # told before Ray ends, which may take long when it is ill
            say(f"error: {failure}", log)
            return 1


def _parse(arguments: Sequence[str]) -> tuple[argparse.Namespace, list[str], list[str]]:
    parts: list[list[str]] = [[], [], []]
    part = 0
    for argument in arguments:
        if argument == "--" and part < 2:
            part += 1
        else:
            parts[part].append(argument)
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--address", required=True, help="HOST:PORT of the first node's Ray")
    parser.add_argument("--log-dir", required=True)
    parser.add_argument("--name", default="", help="of this node")
    parser.add_argument("--nodes", default="", help="names of all nodes, with commas between")
    parser.add_argument("--npus", type=int, default=0, help="of all nodes")
    parser.add_argument("--wait-timeout-s", type=float, default=300.0)
    parser.add_argument("--ray-dir", default="", help="receives Ray's sockets and logs; removed at the end")
    return parser.parse_args(parts[0]), parts[1], parts[2]


def _catch_signals() -> None:
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, _stop)


def _stop(number: int, frame: object) -> NoReturn:
    raise SystemExit(128 + number)


def _other(options: argparse.Namespace, start: list[str], ends: contextlib.ExitStack) -> int:
    """A node but the first: there as long as the first is."""
    deadline = time.monotonic() + options.wait_timeout_s
    while not reachable(options.address):
        if time.monotonic() > deadline:
            raise Failed(f"Ray at {options.address} does not answer after {options.wait_timeout_s:.0f} s")
        time.sleep(1.0)
    own, missed = own_ray(options, start, ends), 0
    while missed < 3:
        try:
            own.check()
        except Failed:
            time.sleep(2.0)  # the first node ends at the same time when the run is over
            if reachable(options.address):
                raise
            return 0
        missed = 0 if reachable(options.address) else missed + 1
        time.sleep(1.0)
    return 0


def _head(
    options: argparse.Namespace, own: OwnRay | None, program: list[str], log: Path, ends: contextlib.ExitStack
) -> int:
    deadline = time.monotonic() + options.wait_timeout_s
    ray = connect(options.address, own, deadline)
    ends.callback(lambda: ray.shutdown() if reachable(options.address) else None)
    if own is not None:
        own.starts = 0  # this process would not survive a cluster in the place of the one that it has joined
    _catch_signals()  # ray.init has put its own in their place
    nodes = Nodes(ray)
    expected = wait(nodes, options, own, deadline, log)
    environment = {**os.environ, "RAY_ADDRESS": options.address, "PYTHONUNBUFFERED": "1"}
    with log.open("ab") as output:
        running = subprocess.Popen(
            program, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, env=environment
        )
        try:
            while running.poll() is None:
                if own is not None:
                    own.check()
                lost = expected.keys() - nodes.living.keys()
                if lost:
                    raise nodes_lost(expected[key] for key in lost)
                time.sleep(POLL_S)
        finally:
            end(running)
    code = running.returncode
    if code:  # a program notices that a node is lost long before Ray takes the node for dead
        silent = [node for node in expected.values() if not reachable(raylet(node))]
        if silent:
            raise nodes_lost(silent)
    return code if code >= 0 else 128 - code
