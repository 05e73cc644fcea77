"""A Slurm cluster of one machine, as the user root: munged, slurmctld, slurmd, in a directory of its own."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch")


@contextlib.contextmanager
def cluster(directory: Path) -> Iterator[None]:
    """Start the daemons with SLURM_CONF set; skips, saying why, where that cannot be done."""
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
        os.environ["SLURM_CONF"] = str(_config(directory, socket_file))
        munge = ["munged", "-F", "-f", f"--key-file={key}", f"--socket={socket_file}"]
        munge += [f"--pid-file={directory}/munge.pid", f"--log-file={directory}/munge.log"]
        munge += [f"--seed-file={directory}/seed"]
        for command in (munge, ["slurmctld", "-D"], ["slurmd", "-D", "-N", "here"]):
            log = (directory / f"{command[0]}.out").open("wb")
            started.append(subprocess.Popen(command, stdout=log, stderr=log, cwd=directory))
            time.sleep(0.5)
        _wait(directory)
        yield
    finally:
        for daemon in reversed(started):
            daemon.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                daemon.wait(10)
            daemon.kill()
        os.environ.clear()
        os.environ.update(old)


def _config(directory: Path, munge: Path) -> Path:
    host, cpus = socket.gethostname(), os.cpu_count()
    for name in ("state", "spool"):
        (directory / name).mkdir()
    text = f"""
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort=16817
SlurmdPort=16818
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={munge}
CredType=cred/munge
StateSaveLocation={directory}/state
SlurmdSpoolDir={directory}/spool
SlurmctldPidFile={directory}/slurmctld.pid
SlurmdPidFile={directory}/slurmd.pid
ProctrackType=proctrack/pgid
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
ReturnToService=2
MpiDefault=none
NodeName=here NodeAddr=127.0.0.1 NodeHostname={host} CPUs={cpus} State=UNKNOWN
PartitionName=all Nodes=here Default=YES MaxTime=INFINITE State=UP
"""
    path = directory / "slurm.conf"
    path.write_text(text)
    return path


def _wait(directory: Path) -> None:
    deadline = time.monotonic() + 30
    while True:
        shown = subprocess.run(["sinfo", "-h", "-o", "%T"], capture_output=True, text=True)
        if shown.stdout.strip() == "idle":
            return
        if time.monotonic() > deadline:
            logs = "\n".join(path.read_text(errors="replace")[-600:] for path in directory.glob("*.out"))
            pytest.skip(f"Slurm does not start here: {shown.stdout}{shown.stderr}\n{logs}")
        time.sleep(0.5)
