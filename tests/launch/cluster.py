"""A Slurm cluster as the user root: munged, slurmctld and a slurmd per node, in a directory of its own."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from launch.process.job import find_port
from tests.launch.namespaces import OUTSIDE, Machines
from tests.processes import wait_until

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch")
CONTROLLER = "slurmctld"


@dataclass
class Daemons:
    """The daemons of a cluster by their names: munged, slurmctld, node0, node1, ..."""

    directory: Path
    commands: dict[str, list[str]] = field(default_factory=dict)
    living: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def start(self, name: str) -> None:
        """Start a daemon."""
        log = (self.directory / f"{name}.out").open("ab")
        self.living[name] = subprocess.Popen(self.commands[name], stdout=log, stderr=log, cwd=self.directory)

    def kill(self, name: str) -> None:
        """Kill a daemon; the processes of a node's jobs go on."""
        process = self.living.pop(name)
        process.kill()
        process.wait()

    def end(self) -> None:
        """End all daemons."""
        for daemon in reversed(self.living.values()):
            daemon.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                daemon.wait(10)
            daemon.kill()
            daemon.wait()


@contextlib.contextmanager
def cluster(
    directory: Path,
    nodes: Machines | None = None,
    *,
    count: int = 1,
    cpus: int | None = None,
    partitions: tuple[str, ...] = ("PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP",),
    settings: tuple[str, ...] = (),
) -> Iterator[Daemons]:
    """Start the daemons with SLURM_CONF set, a slurmd on each of `nodes`, or `count` on this machine.

    Each node has `cpus` CPUs for Slurm, this machine's by default. `partitions` and `settings` are lines of
    slurm.conf. Skip the test, with the reason, where that is impossible.
    """
    missing = [name for name in PROGRAMS if shutil.which(name, path="/usr/sbin:/usr/bin") is None]
    if missing or os.geteuid() != 0:
        pytest.skip(f"needs root and {', '.join(missing)} (apt-get install slurm-wlm munge)")
    key, socket_file = directory / "munge.key", directory / "munge.socket"
    key.write_bytes(os.urandom(1024))
    key.chmod(0o600)
    directory.chmod(0o755)
    daemons = Daemons(directory)
    old = dict(os.environ)
    try:
        addresses = ["127.0.0.1"] * count if nodes is None else nodes.addresses
        controller = "127.0.0.1" if nodes is None else OUTSIDE
        lines = [*_nodes(addresses, cpus or os.cpu_count() or 1), *partitions, *settings]
        os.environ["SLURM_CONF"] = str(_config(directory, socket_file, controller, lines))
        files = {"key": key, "pid": "munge.pid", "log": "munge.log", "seed": "seed"}
        options = [f"--{name}-file={directory / file}" for name, file in files.items()]
        daemons.commands["munged"] = ["munged", "-F", "-f", f"--socket={socket_file}", *options]
        daemons.commands[CONTROLLER] = ["slurmctld", "-D"]
        for number in range(len(addresses)):
            inside = [] if nodes is None else nodes.insides[number]
            daemons.commands[f"node{number}"] = [*inside, "slurmd", "-D", "-N", f"node{number}"]
            (directory / f"spool_node{number}").mkdir()
        for name in daemons.commands:
            daemons.start(name)
            if name == "munged":
                _wait(socket_file.exists, directory, name)
        nodes_ready = ["sh", "-c", 'test "$(sinfo -h -N -o %T | sort -u)" = idle']
        _wait(lambda: subprocess.run(nodes_ready).returncode == 0, directory, "Slurm")
        yield daemons
    finally:
        daemons.end()
        os.environ.clear()
        os.environ.update(old)


def _nodes(addresses: list[str], cpus: int) -> Iterator[str]:
    """Yield the line of each node; nodes of this machine, whose addresses are equal, differ by their port."""
    common = f"NodeHostname={socket.gethostname()} CPUs={cpus} State=UNKNOWN"
    for number, address in enumerate(addresses):
        port = f"Port={find_port('127.0.0.1', None)} " if addresses.count(address) > 1 else ""
        yield f"NodeName=node{number} NodeAddr={address} {port}{common}"


def _config(directory: Path, munge: Path, controller: str, lines: list[str]) -> Path:
    (directory / "state").mkdir()
    # cred_expire: a job that is requeued waits until its old credential has expired, two minutes otherwise.
    text = f"""
ClusterName=test
SlurmctldHost={socket.gethostname()}({controller})
SlurmctldPort={find_port(controller, None)}
SlurmdPort={find_port("127.0.0.1", None)}
SlurmUser=root
AuthInfo=socket={munge},cred_expire=5
StateSaveLocation={directory}/state
SlurmdSpoolDir={directory}/spool_%n
SlurmctldPidFile={directory}/slurmctld.pid
SlurmdPidFile={directory}/slurmd_%n.pid
ProctrackType=proctrack/pgid
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
ReturnToService=2
SlurmdTimeout=20
KillWait=20
SchedulerParameters=sched_interval=1,batch_sched_delay=0
SlurmdParameters=config_overrides
"""
    path = directory / "slurm.conf"
    path.write_text("\n".join([text, *lines]) + "\n")
    return path


def _wait(condition: Callable[[], object], directory: Path, what: str) -> None:
    try:
        wait_until(condition, 90)
    except AssertionError:
        logs = "\n".join(path.read_text(errors="replace")[-600:] for path in directory.glob("*.out"))
        pytest.skip(f"{what} does not start here\n{logs}")
