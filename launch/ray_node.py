"""One node's part of a run on Ray: `python ray_node.py OPTIONS -- ray start ... -- PROGRAM...`.

Start scripts end in it. It runs on the node, by the engine's interpreter with the engine's own ray, and
needs nothing of grpoflow: a copy lies beside the scripts. The first node's waits until all NPUs are
registered, runs PROGRAM with RAY_ADDRESS set, and fails when a node is lost; the others' (without PROGRAM)
end with 0 once the first node's Ray is gone. Each ends the Ray that it started and no other: no `ray stop`,
which ends every Ray of the machine. Without `ray start ...` a cluster that is there already is used.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import logging
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn

MEETING = ("MASTER_ADDR", "MASTER_PORT", "LOG_DIR")
"""Of the start scripts; trainers know the same names for other things."""
POLL_S = 0.2
LOOK_S = 2.0
"""Between two looks at the nodes."""
PROGRESS_S = 15.0
GRACE_S = 5.0
SAVED_BYTES = 64 * 2**10
"""Of each of Ray's own logs, its end, that are kept."""


class Failed(Exception):
    """The run cannot go on; the message says why."""


def main(arguments: Sequence[str]) -> int:
    """Run a node's part to its end; returns the exit code."""
    options, start, program = _parse(arguments)
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, _stop)
    for name in MEETING:
        os.environ.pop(name, None)
    log = Path(options.log_dir) / "worker_0.log" if program else None
    try:
        with contextlib.ExitStack() as ends:
            if log is None:
                return _other(options, start, ends)
            return _head(options, start, program, log, ends)
    except Failed as failure:  # told last, below what ending the others made them say
        _say(f"error: {failure}", log)
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


def _stop(number: int, frame: object) -> NoReturn:
    raise SystemExit(128 + number)


def _say(text: str, log: Path | None) -> None:
    print(text, flush=True)
    if log is not None:
        with log.open("a", encoding="utf-8") as file:
            file.write(text + "\n")


def _other(options: argparse.Namespace, start: list[str], ends: contextlib.ExitStack) -> int:
    """A node but the first: there as long as the first is."""
    deadline = time.monotonic() + options.wait_timeout_s
    while not _reachable(options.address):
        if time.monotonic() > deadline:
            raise Failed(f"Ray at {options.address} does not answer after {options.wait_timeout_s:.0f} s")
        time.sleep(1.0)
    ray = _start(options, start, ends)
    missed = 0
    while missed < 3:
        if ray.poll() is not None:
            time.sleep(2.0)  # the first node ends at the same time when the run is over
            if _reachable(options.address):
                raise Failed(f"Ray on node {options.name} ended with exit code {ray.returncode}")
            return 0
        missed = 0 if _reachable(options.address) else missed + 1
        time.sleep(1.0)
    return 0


def _head(
    options: argparse.Namespace,
    start: list[str],
    program: list[str],
    log: Path,
    ends: contextlib.ExitStack,
) -> int:
    deadline = time.monotonic() + options.wait_timeout_s
    child = _start(options, start, ends) if start else None
    ray = _connect(options.address, child, deadline)
    ends.callback(ray.shutdown)
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):  # ray.init has put its own
        signal.signal(number, _stop)
    expected = _wait(ray, options, child, deadline, log)
    environment = {**os.environ, "RAY_ADDRESS": options.address, "PYTHONUNBUFFERED": "1"}
    with log.open("ab") as output, _ended(program, environment, output) as running:
        next_look = 0.0
        while running.poll() is None:
            if time.monotonic() > next_look:
                next_look = time.monotonic() + LOOK_S
                _check(child)
                living = {node["NodeID"] for node in _living(ray)}
                lost = [label for key, label in expected.items() if key not in living]
                if lost:
                    raise Failed(f"lost: {', '.join(lost)}")
            time.sleep(POLL_S)
    code = running.returncode
    return code if code >= 0 else 128 - code


def _start(
    options: argparse.Namespace, start: list[str], ends: contextlib.ExitStack
) -> subprocess.Popen[bytes]:
    """Start this node's Ray, in a directory that others can't look into, whatever mode Ray gives its own."""
    directory = Path(options.ray_dir)
    mine = directory / f"made_by_{options.name.replace('/', '_')}"
    if mine.exists():  # a killed run's
        shutil.rmtree(directory)
    if not directory.exists():
        directory.mkdir(mode=0o700)
        mine.touch()
        ends.callback(_clear, directory, Path(options.log_dir) / f"ray_{options.name}")
    elif directory.is_symlink() or directory.stat().st_uid != os.getuid():
        raise Failed(f"{directory} belongs to another user")
    try:
        return ends.enter_context(_ended(start, {**os.environ, "RAY_DISABLE_IMPORT_WARNING": "1"}, None))
    except FileNotFoundError as error:
        raise Failed(f"{start[0]} is not installed beside {sys.executable}") from error


@contextlib.contextmanager
def _ended(command: list[str], environment: dict[str, str], output: Any) -> Iterator[subprocess.Popen[bytes]]:
    """A child that does not outlive the block."""
    child = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, env=environment
    )
    try:
        yield child
    finally:
        if child.poll() is None:
            child.terminate()
        try:
            child.wait(GRACE_S)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()


def _reachable(address: str) -> bool:
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=3.0).close()
    except OSError:
        return False
    return True


def _connect(address: str, child: subprocess.Popen[bytes] | None, deadline: float) -> Any:
    """The ray module, joined to the cluster as a driver that does no work."""
    try:
        ray = importlib.import_module("ray")
    except ImportError as error:
        raise Failed(f"ray is not installed for {sys.executable}: {error}") from error
    problem: object = "nothing listens there"
    while True:
        _check(child)
        if _reachable(address):
            try:
                ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
                return ray
            except (ConnectionError, RuntimeError, ValueError) as error:  # its node is not registered yet
                problem = str(error) or type(error).__name__
                ray.shutdown()
        if time.monotonic() > deadline:
            raise Failed(f"Ray at {address} does not answer: {problem}")
        time.sleep(1.0)


def _living(ray: Any) -> list[dict[str, Any]]:
    return [node for node in ray.nodes() if node["Alive"]]


def _wait(
    ray: Any,
    options: argparse.Namespace,
    child: subprocess.Popen[bytes] | None,
    deadline: float,
    log: Path,
) -> dict[str, str]:
    """Wait for all NPUs; the nodes that are there then, as {Ray's id: what a reader calls it}."""
    told, next_told = "", 0.0
    while True:
        _check(child)
        nodes = _living(ray)
        names = {node["NodeName"] for node in nodes}
        npus = sum(int(node["Resources"].get("NPU", 0)) for node in nodes)
        missing = [name for name in options.nodes.split(",") if name and name not in names]
        text = f"{npus} of {options.npus} NPUs are registered"
        if missing:
            text += f"; missing: {', '.join(missing)}"
        if text != told or time.monotonic() > next_told:
            told, next_told = text, time.monotonic() + PROGRESS_S
            _say(f"ray: {text}", log)
        if npus >= options.npus and not missing:
            return {
                node["NodeID"]: f"node {node['NodeName']} ({node['NodeManagerAddress']})" for node in nodes
            }
        if time.monotonic() > deadline:
            raise Failed(f"after {options.wait_timeout_s:.0f} s {text}")
        time.sleep(1.0)


def _check(child: subprocess.Popen[bytes] | None) -> None:
    if child is not None and child.poll() is not None:
        raise Failed(f"Ray on the first node ended with exit code {child.returncode}")


def _clear(directory: Path, kept: Path) -> None:
    """Remove Ray's directory, but for the ends of its logs; they are no logs of workers, and are named so."""
    with contextlib.suppress(OSError):
        for log in directory.glob("*/session_latest/logs/*"):
            if log.is_file() and log.stat().st_size > 0:
                kept.mkdir(exist_ok=True)
                with log.open("rb") as file:
                    file.seek(max(0, log.stat().st_size - SAVED_BYTES))
                    (kept / f"{log.name}.txt").write_bytes(file.read())
    shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
