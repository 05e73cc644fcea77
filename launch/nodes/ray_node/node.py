"""Work of one node from start to end."""

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

from .cluster import Nodes, connect, nodes_lost, reachable, report, wait
from .local_ray import POLL_S, Failed, LocalRay, adopt_orphans, end

SCRIPT_VARIABLES = ("MASTER_ADDR", "MASTER_PORT", "LOG_DIR")
"""Variables of the start scripts; trainers use the same names for other purposes."""


def main(arguments: Sequence[str]) -> int:
    """Run this node's part and return the exit code."""
    options, command, program = _parse(arguments)
    _catch_signals()
    adopt_orphans()
    for name in SCRIPT_VARIABLES:
        os.environ.pop(name, None)
    log = Path(options.log_dir) / "worker_0.log" if program else None
    saved = Path(options.log_dir) / f"ray_{options.name}"
    local_ray = LocalRay(command, options.name, Path(options.ray_dir), saved) if command else None
    with contextlib.ExitStack() as cleanup:
        if local_ray is not None:
            cleanup.callback(local_ray.end)
        try:
            if log is not None:
                return _run_program(options, local_ray, program, log, cleanup)
            return _serve(options, local_ray)
        except Failed as failure:  # reported before Ray ends, which may take long
            report(f"error: {failure}", log)
            return 1


def _parse(arguments: Sequence[str]) -> tuple[argparse.Namespace, list[str], list[str]]:
    """Split the arguments into options, `ray start` and program."""
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
    parser.add_argument("--name", default="", help="name of this node")
    parser.add_argument("--nodes", default="", help="names of all nodes, separated by commas")
    parser.add_argument("--npus", type=int, default=0, help="number of NPUs of all nodes")
    parser.add_argument("--wait-timeout-s", type=float, default=300.0)
    parser.add_argument(
        "--ray-dir", default="", help="directory of Ray's sockets and logs; removed at the end"
    )
    return parser.parse_args(parts[0]), parts[1], parts[2]


def _catch_signals() -> None:
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, _stop)


def _stop(number: int, frame: object) -> NoReturn:
    raise SystemExit(128 + number)


def _serve(options: argparse.Namespace, local_ray: LocalRay | None) -> int:
    """Run Ray on a node without the program until the first node's Ray ends."""
    assert local_ray is not None
    deadline = time.monotonic() + options.wait_timeout_s
    while not reachable(options.address):
        if time.monotonic() > deadline:
            raise Failed(f"Ray at {options.address} does not answer after {options.wait_timeout_s:.0f} s")
        time.sleep(1.0)
    try:
        local_ray.start()
        missed = 0
        while missed < 3:
            local_ray.check()
            missed = 0 if reachable(options.address) else missed + 1
            time.sleep(1.0)
    except Failed:
        time.sleep(2.0)  # the first node's Ray ends at the same time when the run is over
        if reachable(options.address):
            raise
    return 0


def _run_program(
    options: argparse.Namespace,
    local_ray: LocalRay | None,
    program: list[str],
    log: Path,
    cleanup: contextlib.ExitStack,
) -> int:
    """Run the program on the first node when the cluster is complete; fail when a node is lost."""
    if local_ray is not None:
        local_ray.start()
    deadline = time.monotonic() + options.wait_timeout_s
    ray = connect(options.address, local_ray, deadline)
    cleanup.callback(lambda: ray.shutdown() if reachable(options.address) else None)
    _catch_signals()  # ray.init has replaced the handlers
    nodes = Nodes(ray)
    expected = wait(nodes, options, local_ray, deadline, log)
    environment = {**os.environ, "RAY_ADDRESS": options.address, "PYTHONUNBUFFERED": "1"}
    with log.open("ab") as output:
        running = subprocess.Popen(
            program, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, env=environment
        )
        try:
            while running.poll() is None:
                if local_ray is not None:
                    local_ray.check()
                lost = expected.keys() - nodes.live.keys()
                if lost:
                    raise nodes_lost(expected[key] for key in lost)
                time.sleep(POLL_S)
        finally:
            end(running)
    code = running.returncode
    if code:  # a program notices a lost node long before Ray does
        raylets = {
            f"{node['NodeManagerAddress']}:{node['NodeManagerPort']}": node for node in expected.values()
        }
        silent = [node for address, node in raylets.items() if not reachable(address)]
        if silent:
            raise nodes_lost(silent)
    return code if code >= 0 else 128 - code
