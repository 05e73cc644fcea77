"""Part of a Ray run on one node: `python ray_node.py ray.json RANK`.

Start scripts end in this program, a copy of which is next to them. It runs on the node with the engine's
interpreter and needs nothing of grpoflow. Every node runs its own `ray start --block`, unless ray.json has
the address of an existing cluster. The first node waits until all cards are registered and runs the program
with RAY_ADDRESS set; the others exit with 0 when the first node's Ray has ended. A node whose Ray ends during
the run fails; the launcher then ends all nodes. `ray stop` is not used: it ends every Ray of a machine.

Why not `ray symmetric-run` (Ray 2.54, ray/scripts/symmetric_run.py): it refuses a machine on which any Ray
runs (check_ray_already_started) and ends with `ray stop`, so that two runs cannot share a machine; it counts
nodes, so that a missing node is not named (check_cluster_ready); a node that is lost while the program runs
is not noticed; a node that fails to start ends with exit code 0 (CalledProcessError is only printed); and it
refuses --node-ip-address, by which a node with several networks chooses one.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import importlib.util
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

POLL_S, GRACE_S = 0.2, 5.0
LOSS_REPORT_S = 5.0  # a program notices a lost node first; then that node reports its end, which names it
REGISTERED = b"Ray runtime started"  # output of `ray start` when its node is registered
SAVED_LOG_BYTES = 64 * 2**10
PR_SET_CHILD_SUBREAPER = 36
WAIT = """
import json, logging, sys, time, ray
address, cards, resource, names, timeout_s = json.loads(sys.argv[1])
ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
deadline, reported = time.monotonic() + timeout_s, None
while True:
    live = [node for node in ray.nodes() if node["Alive"]]
    registered = sum(int(node["Resources"].get(resource, 0)) for node in live)
    missing = [name for name in names if name not in {node["NodeName"] for node in live}]
    state = f"{registered} of {cards} {resource}s are registered"
    state += f"; missing: {', '.join(missing)}" if missing else ""
    if state != reported:
        print(f"ray: {state}", flush=True)
    if registered >= cards and not missing:
        break
    if time.monotonic() > deadline:
        sys.exit(f"error: after {timeout_s:.0f} s {state}")
    reported = state
    time.sleep(0.2)
"""
"""Waits until the cluster is complete, in a separate process, because ray replaces signal handlers."""


class Failed(Exception):
    """Reason why the run cannot continue."""


class RayNode:
    """The node on which this program runs, and its `ray start` unless an existing cluster is used.

    Ray's directory is private. At the end it is removed, and the ends of Ray's logs are saved.
    """

    def __init__(self, settings: dict[str, Any], rank: int) -> None:
        self.settings, self.rank = settings, rank
        self.name = settings["nodes"][rank]["name"]
        # trainers use these names for other purposes
        host, port = os.environ.pop("MASTER_ADDR"), os.environ.pop("MASTER_PORT")
        self.logs = Path(os.environ.pop("LOG_DIR"))
        several = len(settings["nodes"]) > 1
        self.host, self.port = socket.gethostbyname(host) if several else "127.0.0.1", port
        self.address = settings["address"] or f"{self.host}:{port}"
        self.saved = self.logs / f"ray_{self.name}"
        self.ray_log = self.saved / "ray_start.txt"
        self.directory = Path(settings["directory"])
        if not os.access(self.directory.parent, os.W_OK):
            self.directory = Path(tempfile.gettempdir(), self.directory.name)
        self.owner = self.directory / f"made_by_{self.name.replace('/', '_')}"
        self.ray: subprocess.Popen[bytes] | None = None

    def start_ray(self) -> None:
        """Create the directory, start Ray, wait until its node is registered; raise Failed if it is not."""
        self.saved.mkdir(exist_ok=True)
        if self.owner.exists():  # left by a killed run
            shutil.rmtree(self.directory)
        if not self.directory.exists():
            self.directory.mkdir(mode=0o700)
            self.owner.touch()
        elif self.directory.is_symlink() or self.directory.stat().st_uid != os.getuid():
            raise Failed(f"{self.directory} belongs to another user")
        with (self.directory / "starting").open("w") as lock, self.ray_log.open("wb") as output:
            fcntl.flock(lock, fcntl.LOCK_EX)  # two nodes of one machine would choose the same socket names
            try:  # the output is not in the worker's log: it contains errors that are harmless
                self.ray = start(self.ray_command(), output, PYTHONUNBUFFERED="1")
            except FileNotFoundError as error:
                rule = f"ray is not installed next to {sys.executable}; choose another engine.python"
                raise Failed(rule) from error
            deadline = time.monotonic() + self.settings["wait_timeout_s"]
            while REGISTERED not in self.ray_log.read_bytes():
                self.check_ray()
                if time.monotonic() > deadline:
                    raise Failed(f"Ray on node {self.name} does not start in time, see {self.ray_log}")
                time.sleep(POLL_S)

    def ray_command(self) -> list[str]:
        """Return the `ray start` command; engine options come last and override grpoflow's."""
        resource, cards = self.settings["resource"], self.settings["nodes"][self.rank]["cards"]
        # Ray refuses its own resource GPU in --resources
        counted = (
            f"--num-gpus={cards}" if resource == "GPU" else f"--resources={json.dumps({resource: cards})}"
        )
        command = ["ray", "start", "--block", f"--node-name={self.name}", counted]
        if self.rank == 0:
            command += ["--head", f"--port={self.port}", f"--node-ip-address={self.host}"]
            command += [f"--temp-dir={self.directory / 'ray'}", "--dashboard-host=127.0.0.1"]
            command.append(f"--dashboard-port={self.settings['dashboard_port'] or free_port()}")
            if importlib.util.find_spec("grpc"):  # ray[default] starts a server with the same port everywhere
                command.append(f"--ray-client-server-port={free_port()}")
        else:
            command.append(f"--address={self.address}")
            if "NODE_ADDR" in os.environ:
                command.append(f"--node-ip-address={os.environ['NODE_ADDR']}")
        # the system chooses the workers' ports: two clusters that search may choose the same
        command += ["--min-worker-port=0", "--max-worker-port=0"]
        command.append(f"--dashboard-agent-listen-port={free_port()}")
        return [*command, *self.settings["options"]]

    def check_ray(self) -> None:
        """Raise Failed if this node's Ray has ended."""
        if self.ray is not None and self.ray.poll() is not None:
            code = self.ray.returncode
            raise Failed(f"Ray on node {self.name} ended with exit code {code}, see {self.ray_log}")

    def run_program(self) -> int:
        """Run the program on the first node when the cluster is complete."""
        if self.settings["address"] is None:
            self.start_ray()
        elif not is_reachable(self.address):
            raise Failed(f"Ray at {self.address} does not answer")
        names = [] if self.ray is None else [node["name"] for node in self.settings["nodes"]]
        request = [
            self.address,
            self.settings["cards"],
            self.settings["resource"],
            names,
            self.settings["wait_timeout_s"],
        ]
        code = self.run([sys.executable, "-c", WAIT, json.dumps(request)])
        if code == 0:
            code = self.run([sys.executable, *self.settings["program"]])
            if code != 0 and len(names) > 1:
                time.sleep(LOSS_REPORT_S)
        return code

    def run(self, command: list[str]) -> int:
        """Run a command with its output in worker 0's log; return its exit code."""
        with (self.logs / "worker_0.log").open("ab") as output:
            child = start(command, output, RAY_ADDRESS=self.address, PYTHONUNBUFFERED="1")
            try:
                while child.poll() is None:
                    self.check_ray()
                    time.sleep(POLL_S)
            finally:
                end(child)
        return child.returncode if child.returncode >= 0 else 128 - child.returncode

    def serve(self) -> int:
        """Run Ray on a node without the program until the first node's Ray ends."""
        timeout_s = self.settings["wait_timeout_s"]
        deadline = time.monotonic() + timeout_s
        while not is_reachable(self.address):
            if time.monotonic() > deadline:
                raise Failed(f"Ray at {self.address} does not answer after {timeout_s:.0f} s")
            time.sleep(1.0)
        try:
            self.start_ray()
            missed = 0
            while missed < 3:
                self.check_ray()
                missed = 0 if is_reachable(self.address) else missed + 1
                time.sleep(1.0)
        except Failed:
            time.sleep(2.0)  # the first node's Ray ends at the same time when the run is over
            if is_reachable(self.address):
                raise
        return 0

    def clean_up(self) -> None:
        """End Ray and its remaining processes, which would wait a minute, and remove its directory."""
        if self.ray is not None:
            end(self.ray)
        while orphans := children():
            for orphan in orphans:
                with contextlib.suppress(ProcessLookupError, ChildProcessError):
                    os.kill(orphan, signal.SIGKILL)
                    os.waitpid(orphan, 0)
        if self.owner.exists():
            with contextlib.suppress(OSError):
                for log in self.directory.glob("*/session_2*/logs/*"):
                    if log.is_file() and log.stat().st_size > 0:  # .txt: diagnose reads logs of workers only
                        (self.saved / f"{log.name}.txt").write_bytes(log.read_bytes()[-SAVED_LOG_BYTES:])
            shutil.rmtree(self.directory, ignore_errors=True)


def start(command: list[str], output: Any, **variables: str) -> subprocess.Popen[bytes]:
    """Start a child process with its output in a file."""
    return subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env={**os.environ, **variables}
    )


def end(child: subprocess.Popen[bytes]) -> None:
    """Send SIGTERM to a child, and SIGKILL after a grace period."""
    child.terminate()
    try:
        child.wait(GRACE_S)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()


def children() -> list[int]:
    """Return the process ids of all children, orphans of former children included."""
    result = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it has just ended
            after_name = stat.read_text(encoding="utf-8", errors="replace").rpartition(")")[2]
            if int(after_name.split()[1]) == os.getpid():
                result.append(int(stat.parent.name))
    return result


def free_port() -> int:
    """Return a free port of this node."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def is_reachable(address: str) -> bool:
    """Return True if a server listens at HOST:PORT."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=3.0).close()
    except OSError:
        return False
    return True


def main(settings: dict[str, Any], rank: int) -> int:
    """Run this node's part and return the exit code."""
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, lambda number, frame: sys.exit(128 + number))
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)  # orphans become children of this process
    os.environ.update(RAY_USAGE_STATS_ENABLED="0")
    os.environ.update(RAY_prestart_worker_first_driver="0")  # the first one is WAIT, which has no work
    if len(settings["nodes"]) == 1:  # otherwise Ray replaces 127.0.0.1 by the machine's address
        os.environ.update(RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER="0")
    os.environ.pop("RAY_ADDRESS", None)
    node = RayNode(settings, rank)
    try:
        return node.run_program() if rank == 0 else node.serve()
    except Failed as failure:  # reported before Ray ends, which may take long
        print(f"error: {failure}", flush=True)
        if rank == 0:
            with (node.logs / "worker_0.log").open("a", encoding="utf-8") as log:
                log.write(f"error: {failure}\n")
        return 1
    finally:
        node.clean_up()


if __name__ == "__main__":
    del sys.path[0]  # this directory, which could hide a package of the interpreter
    sys.exit(main(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")), int(sys.argv[2])))
