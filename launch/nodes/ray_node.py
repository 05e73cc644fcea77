"""Part of a Ray run on one node: `python ray_node.py OPTIONS -- ray start ... -- PROGRAM...`.

Start scripts end in this program, a copy of which is next to them. It runs on the node with the engine's
interpreter and needs nothing of grpoflow. Every node starts its own Ray process; without `ray start ...` an
existing cluster is used. The first node waits until all NPUs are registered and runs PROGRAM with RAY_ADDRESS
set. The other nodes have no PROGRAM and exit with 0 when the first node's Ray has ended. A node whose Ray
ends during the run fails; the launcher then ends all nodes. `ray stop` is not used: it ends every Ray of a
machine.
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
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

SCRIPT_VARIABLES = ("MASTER_ADDR", "MASTER_PORT", "LOG_DIR")  # trainers use these names for other purposes
POLL_S, GRACE_S = 0.2, 5.0
LOSS_REPORT_S = 5.0  # a program notices a lost node first; then that node reports its end, which names it
REGISTERED = b"Ray runtime started"  # output of `ray start` when its node is registered
SAVED_LOG_BYTES = 64 * 2**10
PR_SET_CHILD_SUBREAPER = 36


class Failed(Exception):
    """Reason why the run cannot continue."""


class LocalRay:
    """The `ray start --block` of this node.

    Its directory is private. At the end it is removed, and the ends of Ray's logs are saved.
    """

    def __init__(self, command: list[str], name: str, directory: Path, saved: Path) -> None:
        self._command, self._name, self._directory, self._saved = command, name, directory, saved
        self._log = saved / "ray_start.txt"
        self._owner = directory / f"made_by_{name.replace('/', '_')}"
        self._child: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Create the directory, start Ray and wait until its node is registered.

        Raises:
            Failed: the directory belongs to another user, or Ray does not start.
        """
        self._saved.mkdir(exist_ok=True)
        if self._owner.exists():  # left by a killed run
            shutil.rmtree(self._directory)
        if not self._directory.exists():
            self._directory.mkdir(mode=0o700)
            self._owner.touch()
        elif self._directory.is_symlink() or self._directory.stat().st_uid != os.getuid():
            raise Failed(f"{self._directory} belongs to another user")
        with (self._directory / "starting").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # two nodes of one machine would choose the same socket names
            self._launch()
            while REGISTERED not in self._log.read_bytes():
                self.check()
                time.sleep(POLL_S)

    def _launch(self) -> None:
        with self._log.open("wb") as output:  # not the worker's log: it contains errors that are harmless
            try:
                self._child = subprocess.Popen(
                    self._command,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    env={**os.environ, "PYTHONUNBUFFERED": "1"},
                )
            except FileNotFoundError as error:
                rule = f"is not installed next to {sys.executable}; choose another engine.python"
                raise Failed(f"{self._command[0]} {rule}") from error

    def check(self) -> None:
        """Raise Failed if Ray has ended."""
        if self._child is not None and self._child.poll() is not None:
            code = self._child.returncode
            raise Failed(f"Ray on node {self._name} ended with exit code {code}, see {self._log}")

    def end(self) -> None:
        """End Ray and its remaining processes, which would wait a minute, and remove its directory."""
        if self._child is not None:
            end(self._child)
        while orphans := _children():
            for orphan in orphans:
                with contextlib.suppress(ProcessLookupError, ChildProcessError):
                    os.kill(orphan, signal.SIGKILL)
                    os.waitpid(orphan, 0)
        if self._owner.exists():
            with contextlib.suppress(OSError):
                for log in self._directory.glob("*/session_2*/logs/*"):
                    if log.is_file() and log.stat().st_size > 0:  # .txt: diagnose reads logs of workers only
                        (self._saved / f"{log.name}.txt").write_bytes(log.read_bytes()[-SAVED_LOG_BYTES:])
            shutil.rmtree(self._directory, ignore_errors=True)


def _children() -> list[int]:
    children = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it has just ended
            after_name = stat.read_text(encoding="utf-8", errors="replace").rpartition(")")[2]
            if int(after_name.split()[1]) == os.getpid():
                children.append(int(stat.parent.name))
    return children


def end(child: subprocess.Popen[bytes]) -> None:
    """Send SIGTERM to a child, and SIGKILL after a grace period."""
    if child.poll() is None:
        child.terminate()
    try:
        child.wait(GRACE_S)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()


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


def wait(
    ray: Any, options: argparse.Namespace, local_ray: LocalRay | None, deadline: float, log: Path
) -> None:
    """Wait until all NPUs are registered."""
    reported = ""
    while True:
        if local_ray is not None:
            local_ray.check()
        live = [node for node in ray.nodes() if node["Alive"]]
        names = {node["NodeName"] for node in live}
        npus = sum(int(node["Resources"].get("NPU", 0)) for node in live)
        missing = [name for name in options.nodes.split(",") if name and name not in names]
        state = f"{npus} of {options.npus} NPUs are registered"
        state += f"; missing: {', '.join(missing)}" if missing else ""
        if state != reported:
            reported = state
            report(f"ray: {state}", log)
        if npus >= options.npus and not missing:
            return
        if time.monotonic() > deadline:
            raise Failed(f"after {options.wait_timeout_s:.0f} s {state}")
        time.sleep(POLL_S)


def report(text: str, log: Path | None) -> None:
    """Print a line, and append it to the log."""
    print(text, flush=True)
    if log is not None:
        with log.open("a", encoding="utf-8") as file:
            file.write(text + "\n")


def main(arguments: Sequence[str]) -> int:
    """Run this node's part and return the exit code."""
    options, command, program = _parse(arguments)
    _catch_signals()
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)  # orphans become children of this process
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
    parser.add_argument("--ray-dir", default="", help="directory of Ray's files; removed at the end")
    return parser.parse_args(parts[0]), parts[1], parts[2]


def _catch_signals() -> None:
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, lambda number, frame: sys.exit(128 + number))


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
    """Run the program on the first node when the cluster is complete."""
    if local_ray is not None:
        local_ray.start()
    deadline = time.monotonic() + options.wait_timeout_s
    ray = connect(options.address, local_ray, deadline)
    cleanup.callback(lambda: ray.shutdown() if reachable(options.address) else None)
    _catch_signals()  # ray.init has replaced the handlers
    wait(ray, options, local_ray, deadline, log)
    environment = {**os.environ, "RAY_ADDRESS": options.address, "PYTHONUNBUFFERED": "1"}
    with log.open("ab") as output:
        running = subprocess.Popen(
            program, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, env=environment
        )
        try:
            while running.poll() is None:
                if local_ray is not None:
                    local_ray.check()
                time.sleep(POLL_S)
        finally:
            end(running)
    if running.returncode != 0 and "," in options.nodes:
        time.sleep(LOSS_REPORT_S)
    return running.returncode if running.returncode >= 0 else 128 - running.returncode


if __name__ == "__main__":
    del sys.path[0]  # this directory, which could hide a package of the interpreter
    try:
        CODE = main(sys.argv[1:])
    except SystemExit as stopped:
        CODE = int(stopped.code or 0)
    sys.stdout.flush()
    os._exit(CODE)  # ray's exit handler waits a minute for a cluster that has ended
