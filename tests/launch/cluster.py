"""A Slurm cluster as the user root: munged, slurmctld and a slurmd per node, in a directory of its own."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from launch.process.job import find_port
from tests.launch.namespaces import OUTSIDE, Machines
from tests.processes import wait_until

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch")


@contextlib.contextmanager
def cluster(directory: Path, nodes: Machines | None = None) -> Iterator[None]:
    """Start the daemons with SLURM_CONF set, a slurmd on each of `nodes` or only on this machine.

    Skip the test, with the reason, where that is impossible.
    """
    missing = [name for name in PROGRAMS if shutil.which(name, path="/usr/sbin:/usr/bin") is None]
    if missing or os.geteuid() != 0:
        pytest.skip(f"needs root and {', '.join(missing)} (apt-get install slurm-wlm munge)")
    key, socket_file = directory / "munge.key", directory / "munge.socket"
    key.write_bytes(os.urandom(1024))
    key.chmod(0o600)
    directory.chmod(0o755)
    started: list[subprocess.Popen[bytes]] = []
    old = dict(os.environ)
    try:
        os.environ["SLURM_CONF"] = str(_config(directory, socket_file, nodes))
        files = {"key": key, "pid": "munge.pid", "log": "munge.log", "seed": "seed"}
        options = [f"--{name}-file={directory / file}" for name, file in files.items()]
        munge = ["munged", "-F", "-f", f"--socket={socket_file}", *options]
        inside = [[]] if nodes is None else nodes.insides
        daemons = [[*prefix, "slurmd", "-D", "-N", f"node{n}"] for n, prefix in enumerate(inside)]
        for command in (munge, ["slurmctld", "-D"], *daemons):
            log = (directory / f"{len(started)}_{command[0]}.out").open("wb")
            started.append(subprocess.Popen(command, stdout=log, stderr=log, cwd=directory))
            if command is munge:
                _wait(socket_file.exists, directory, "munged")
        nodes_ready = ["sh", "-c", 'test "$(sinfo -h -N -o %T | sort -u)" = idle']
        _wait(lambda: subprocess.run(nodes_ready).returncode == 0, directory, "Slurm")
        yield
    finally:
        for daemon in reversed(started):
            daemon.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                daemon.wait(10)
            daemon.kill()
            daemon.wait()
        os.environ.clear()
        os.environ.update(old)


def _config(directory: Path, munge: Path, nodes: Machines | None) -> Path:
    host, cpus = socket.gethostname(), os.cpu_count()
    addresses = ["127.0.0.1"] if nodes is None else nodes.addresses
    controller = "127.0.0.1" if nodes is None else OUTSIDE
    (directory / "state").mkdir()
    for number in range(len(addresses)):
        (directory / f"spool_node{number}").mkdir()
    # cred_expire: a job that is requeued waits until its old credential has expired, two minutes otherwise.
    text = f"""
ClusterName=test
SlurmctldHost={host}({controller})
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
ReturnToService=2
SlurmdTimeout=20
KillWait=20
SchedulerParameters=sched_interval=1,batch_sched_delay=0
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""
    for number, address in enumerate(addresses):
        text += f"NodeName=node{number} NodeAddr={address} NodeHostname={host} CPUs={cpus} State=UNKNOWN\n"
    path = directory / "slurm.conf"
    path.write_text(text)
    return path


def _wait(condition: Callable[[], object], directory: Path, what: str) -> None:
    try:
        wait_until(condition, 90)
    except AssertionError:
        logs = "\n".join(path.read_text(errors="replace")[-600:] for path in directory.glob("*.out"))
        pytest.skip(f"{what} does not start here\n{logs}")
