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
import ctypes
import fcntl
import importlib
import logging
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NoReturn

MEETING = ("MASTER_ADDR", "MASTER_PORT", "LOG_DIR")
"""Of the start scripts; trainers know the same names for other things."""
POLL_S = 0.2
LOOK_S = 2.0
"""Between two looks at the nodes."""
PROGRESS_S = 15.0
GRACE_S = 5.0
TOO_SLOW_S, STARTS = 25.0, 3
"""`ray start` gives up when its node is not registered after 30 s, which a busy machine may need: seconds
from which on an end counts as that, and how often it is started in all."""
CAME_UP = b"Ray runtime started"
"""What `ray start` says when its node is registered."""
SAVED_BYTES = 64 * 2**10
"""Of each of Ray's own logs, its end, that are kept."""


class Failed(Exception):
    """The run cannot go on; the message says why."""


def main(arguments: Sequence[str]) -> int:
    """Run a node's part to its end; returns the exit code."""
    options, start, program = _parse(arguments)
    _catch_signals()
    _adopt_orphans()
    for name in MEETING:
        os.environ.pop(name, None)
    log = Path(options.log_dir) / "worker_0.log" if program else None
    with contextlib.ExitStack() as ends:
        try:
            own = _own(options, start, ends) if start and log else None
            return _head(options, own, program, log, ends) if log else _other(options, start, ends)
        except Failed as failure:  # told before Ray ends, which may take long when it is ill
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


def _catch_signals() -> None:
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, _stop)


def _stop(number: int, frame: object) -> NoReturn:
    raise SystemExit(128 + number)


def _say(text: str, log: Path | None) -> None:
    print(text, flush=True)
    if log is not None:
        with log.open("a", encoding="utf-8") as file:
            file.write(text + "\n")


class OwnRay:
    """This node's `ray start --block`."""

    def __init__(self, command: list[str], name: str, directory: Path, log: Path) -> None:
        self._command, self._name, self._directory, self._log = command, name, directory, log
        self.starts = STARTS
        """How often it may still be started."""
        self._child: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it; one at a time on a machine: two would take the same names for their sockets."""
        with (self._directory / "starting").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            sockets = self._sockets()
            self.starts, self._since = self.starts - 1, time.monotonic()
            try:
                with self._log.open("ab") as output:  # apart: it tells of errors that are none
                    self._said = output.tell()
                    child = self._child = subprocess.Popen(
                        self._command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT
                    )
            except FileNotFoundError as error:
                what = f"{self._command[0]} is not installed beside {sys.executable}, nor on PATH"
                raise Failed(f"{what}={os.environ.get('PATH')}; engine.python names another one") from error
            while self._sockets() < sockets + 2 and time.monotonic() - self._since < TOO_SLOW_S:
                if child.poll() is not None:
                    break
                time.sleep(POLL_S)

    def _sockets(self) -> int:
        return len(list(self._directory.glob("*/session_2*/sockets/*")))

    def check(self) -> None:
        """Raise unless it runs; one that was too slow to come up gets another chance."""
        if self._child is None or self._child.poll() is None:
            return
        lasted = time.monotonic() - self._since
        if lasted > TOO_SLOW_S and self.starts > 0 and not self._came_up():
            print(f"ray start ended after {lasted:.0f} s; it is started again", flush=True)
            self.start()
            return
        code = self._child.returncode
        raise Failed(f"Ray on node {self._name} ended with exit code {code}, see {self._log}")

    def _came_up(self) -> bool:
        with self._log.open("rb") as log:
            log.seek(self._said)
            return CAME_UP in log.read()

    def end(self) -> None:
        """End it, and what it leaves behind: agents that wait a minute for a cluster that is gone."""
        if self._child is not None:
            _end(self._child)
        while orphans := _children():
            for orphan in orphans:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(orphan, signal.SIGKILL)
            for orphan in orphans:
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(orphan, 0)


def _adopt_orphans() -> None:
    """Descendants whose parents end become this process's children, not init's."""
    ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER


def _children() -> list[int]:
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it has just ended
            after_name = stat.read_text(encoding="utf-8", errors="replace").rpartition(")")[2]
            if int(after_name.split()[1]) == os.getpid():
                found.append(int(stat.parent.name))
    return found


def _other(options: argparse.Namespace, start: list[str], ends: contextlib.ExitStack) -> int:
    """A node but the first: there as long as the first is."""
    deadline = time.monotonic() + options.wait_timeout_s
    while not _reachable(options.address):
        if time.monotonic() > deadline:
            raise Failed(f"Ray at {options.address} does not answer after {options.wait_timeout_s:.0f} s")
        time.sleep(1.0)
    own, missed = _own(options, start, ends), 0
    while missed < 3:
        try:
            own.check()
        except Failed:
            time.sleep(2.0)  # the first node ends at the same time when the run is over
            if _reachable(options.address):
                raise
            return 0
        missed = 0 if _reachable(options.address) else missed + 1
        time.sleep(1.0)
    return 0


def _head(
    options: argparse.Namespace, own: OwnRay | None, program: list[str], log: Path, ends: contextlib.ExitStack
) -> int:
    deadline = time.monotonic() + options.wait_timeout_s
    ray = _connect(options.address, own, deadline)
    ends.callback(lambda: ray.shutdown() if _reachable(options.address) else None)
    if own is not None:
        own.starts = 0  # this process would not survive a cluster in the place of the one that it has joined
    _catch_signals()  # ray.init has put its own in their place
    nodes = Nodes(ray)
    expected = _wait(nodes, options, own, deadline, log)
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
                    raise _lost(expected[key] for key in lost)
                time.sleep(POLL_S)
        finally:
            _end(running)
    code = running.returncode
    if code:  # a program notices that a node is lost long before Ray takes the node for dead
        silent = [node for node in expected.values() if not _reachable(_raylet(node))]
        if silent:
            raise _lost(silent)
    return code if code >= 0 else 128 - code


def _raylet(node: dict[str, Any]) -> str:
    return f"{node['NodeManagerAddress']}:{node['NodeManagerPort']}"


def _lost(nodes: Iterable[dict[str, Any]]) -> Failed:
    names = sorted(f"node {node['NodeName']} ({node['NodeManagerAddress']})" for node in nodes)
    return Failed(f"lost: {', '.join(names)}")


def _own(options: argparse.Namespace, start: list[str], ends: contextlib.ExitStack) -> OwnRay:
    """Start this node's Ray, in a directory that others can't look into, whatever mode Ray gives its own."""
    directory, kept = Path(options.ray_dir), Path(options.log_dir) / f"ray_{options.name}"
    kept.mkdir(exist_ok=True)
    mine = directory / f"made_by_{options.name.replace('/', '_')}"
    if mine.exists():  # a killed run's
        shutil.rmtree(directory)
    if not directory.exists():
        directory.mkdir(mode=0o700)
        mine.touch()
        ends.callback(_clear, directory, kept)
    elif directory.is_symlink() or directory.stat().st_uid != os.getuid():
        raise Failed(f"{directory} belongs to another user")
    own = OwnRay(start, options.name, directory, kept / "ray_start.txt")
    ends.callback(own.end)
    own.start()
    return own


def _end(child: subprocess.Popen[bytes]) -> None:
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


def _connect(address: str, own: OwnRay | None, deadline: float) -> Any:
    """The ray module, joined to the cluster as a driver that does no work."""
    try:
        ray = importlib.import_module("ray")
    except ImportError as error:
        raise Failed(f"ray is not installed for {sys.executable}: {error}") from error
    problem: object = "nothing listens there"
    while True:
        if own is not None:
            own.check()
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


def _wait(
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
            _say(f"ray: {text}", log)
        if npus >= options.npus and not missing:
            return living
        if time.monotonic() > deadline:
            raise Failed(f"after {options.wait_timeout_s:.0f} s {text}")
        time.sleep(POLL_S)


def _clear(directory: Path, kept: Path) -> None:
    """Remove Ray's directory, but for the ends of its logs; they are no logs of workers, and are named so."""
    with contextlib.suppress(OSError):
        for log in directory.glob("*/session_2*/logs/*"):
            if log.is_file() and log.stat().st_size > 0:
                with log.open("rb") as file:
                    file.seek(max(0, log.stat().st_size - SAVED_BYTES))
                    (kept / f"{log.name}.txt").write_bytes(file.read())
    shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    try:
        CODE = main(sys.argv[1:])
    except SystemExit as stopped:
        CODE = int(stopped.code or 0)
    sys.stdout.flush()
    os._exit(CODE)  # ray's own end at exit waits a minute for a cluster that is gone
