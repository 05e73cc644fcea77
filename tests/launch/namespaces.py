"""Machines out of network namespaces: each with its own address, its own loopback and its own sshd."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.processes import wait_until

SSHD = "/usr/sbin/sshd"
TAG = f"gf{os.getpid()}"  # a killed run leaves its names behind; they must not be in the way
BRIDGE = f"{TAG}_br"  # 15 characters at most


OUTSIDE = "10.77.0.254"


@dataclass
class Machines:
    """A bridge with namespaces at 10.77.0.1, 10.77.0.2, ...; ssh runs inside the first."""

    addresses: list[str]
    ssh: list[str]
    insides: list[list[str]]
    """Prefixes that run a command on each."""
    daemons: list[subprocess.Popen[bytes]]

    def cut(self, number: int) -> None:
        """Pull the cable of a machine: it is lost."""
        ip("link", "set", f"{TAG}_v{number}", "down")

    def mend(self, number: int) -> None:
        """Reconnect the machine."""
        ip("link", "set", f"{TAG}_v{number}", "up")

    def processes(self, number: int) -> list[int]:
        """Return the ids of a machine's processes, without its sshd."""
        shown = subprocess.run(
            ["ip", "netns", "pids", f"{TAG}_{number}"], capture_output=True, text=True, check=True
        )
        return [int(word) for word in shown.stdout.split() if int(word) != self.daemons[number].pid]

    def mount_separate_disk(self, number: int, directory: Path) -> None:
        """Mount a separate disk at `directory` of the machine."""
        mount = ["mount", "-t", "tmpfs", "none", str(directory)]
        subprocess.run(["nsenter", "-m", "-t", str(self.daemons[number].pid), *mount], check=True)


def ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True)


@contextlib.contextmanager
def machines(count: int, directory: Path, outside: bool = False) -> Iterator[Machines]:
    """Build and take down; skips, saying why, where that cannot be done. outside: OUTSIDE is our address."""
    if os.geteuid() != 0 or shutil.which("ip") is None or not os.access(SSHD, os.X_OK):
        pytest.skip("needs root, iproute2 and openssh-server (apt-get install openssh-server iproute2)")
    made: list[subprocess.Popen[bytes]] = []
    try:
        ip("link", "add", BRIDGE, "type", "bridge")
        ip("link", "set", BRIDGE, "up")
        if outside:
            ip("addr", "add", f"{OUTSIDE}/24", "dev", BRIDGE)
    except (subprocess.CalledProcessError, PermissionError) as error:
        pytest.skip(f"network namespaces cannot be made here: {error}")
    try:
        key = directory / "key"
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
        (directory / "authorized").write_text(Path(f"{key}.pub").read_text())
        for number in range(count):
            made.append(_machine(number, directory, key))
        options = ["-i", str(key), "-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null"]
        options += ["-o", "LogLevel=ERROR", "-o", "ServerAliveInterval=1", "-o", "ServerAliveCountMax=3"]
        # not `ip netns exec`, which mounts a /sys of its own, without the cgroups that slurmd looks for
        insides = [["nsenter", f"--net=/run/netns/{TAG}_{number}"] for number in range(count)]
        ssh = [*insides[0], "ssh", *options]
        addresses = [f"10.77.0.{number + 1}" for number in range(count)]
        for address in addresses:
            command = [*ssh, address, "true"]
            wait_until(lambda: subprocess.run(command, stdin=subprocess.DEVNULL).returncode == 0)  # noqa: B023
        yield Machines(addresses, ssh, insides, made)
    finally:
        for daemon in made:
            daemon.kill()
            daemon.wait()
        for number in range(count):
            subprocess.run(["ip", "netns", "del", f"{TAG}_{number}"], capture_output=True)
            subprocess.run(["ip", "link", "del", f"{TAG}_v{number}"], capture_output=True)
        subprocess.run(["ip", "link", "del", BRIDGE], capture_output=True)


def _machine(number: int, directory: Path, key: Path) -> subprocess.Popen[bytes]:
    name, cable = f"{TAG}_{number}", f"{TAG}_v{number}"
    ip("netns", "add", name)
    ip("link", "add", cable, "type", "veth", "peer", "name", "eth0", "netns", name)
    ip("link", "set", cable, "master", BRIDGE, "up")
    ip("-n", name, "addr", "add", f"10.77.0.{number + 1}/24", "dev", "eth0")
    ip("-n", name, "link", "set", "eth0", "up")
    ip("-n", name, "link", "set", "lo", "up")
    Path("/run/sshd").mkdir(exist_ok=True)
    config = directory / f"sshd_{number}"
    config.write_text(
        f"Port 22\nHostKey {key}\nPidFile none\nUsePAM no\nPasswordAuthentication no\nStrictModes no\n"
        f"PermitRootLogin prohibit-password\nAuthorizedKeysFile {directory / 'authorized'}\n"
    )
    return subprocess.Popen(
        ["ip", "netns", "exec", name, SSHD, "-D", "-e", "-f", str(config)],
        stdout=subprocess.DEVNULL,
        stderr=(directory / f"sshd_{number}.log").open("wb"),
    )
