"""What this machine has and an engine needs, one check each. Reads; starts, installs and changes nothing."""

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from packaging.specifiers import SpecifierSet
from packaging.version import Version

from launch.errors import LaunchError
from launch.machine.environment import memory_bytes
from launch.process.msrun import find_port

Window = tuple[str, str, str]
"""Distribution, versions that work (empty: any), why."""
PYTHONS = ">=3.10,<3.12"
"""grpoflow needs 3.10; mindspore 2.7.0 has wheels up to 3.11."""
Status = Literal["ok", "problem", "unknown"]
ASCEND = Path("/usr/local/Ascend")
"""Where CANN and the driver are installed by default."""
BUILT = "docs/install.md says how to install it: PyPI's vllm is built for other cards"
_VERSIONS = """
import json, sys
from importlib.metadata import PackageNotFoundError, version
found = {"python": "%d.%d.%d" % sys.version_info[:3]}
for name in sys.argv[1:]:
    try:
        found[name] = version(name)
    except PackageNotFoundError:
        found[name] = None
print(json.dumps(found))
"""


@dataclass(frozen=True)
class Check:
    """One finding."""

    name: str
    status: Status
    """unknown: it could not be looked at; no reason to refuse."""
    found: str
    remedy: str = ""
    """What is needed and how to get it; empty where all is well."""


def interpreter(configured: str | None) -> str | None:
    """An engine's Python: the configured one, or the first on PATH that is not grpoflow's own."""
    if configured is not None:
        found = os.path.abspath(configured) if "/" in configured else shutil.which(configured)
        return found or configured
    own = Path(sys.prefix, "bin").resolve()
    others = (entry for entry in os.environ.get("PATH", "").split(os.pathsep) if Path(entry).resolve() != own)
    return shutil.which("python", path=os.pathsep.join(others))


def versions(python: str, packages: Sequence[str], timeout_s: float = 30) -> Mapping[str, str | None] | None:
    """Versions of distributions in another interpreter, its own under `python`; None: it does not answer."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    try:
        done = subprocess.run(
            [python, "-c", _VERSIONS, *packages],
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=True,
            env=environment,
            cwd="/",
        )
        found: Mapping[str, str | None] = json.loads(done.stdout)
        return found
    except (OSError, subprocess.SubprocessError, ValueError):
        return None


def packages(windows: Sequence[Window], installed: Callable[[str], str | None], python: str) -> list[Check]:
    """One check per distribution."""
    found = []
    for name, wanted, why in windows:
        have = installed(name)
        good = have is not None and SpecifierSet(wanted).contains(have, prereleases=True)
        how = BUILT if name.startswith("vllm") else f"{python} -m pip install '{name}{wanted}'"
        remedy = f"must be {name}{wanted} ({why}); {how}"
        found.append(
            Check(name, "ok" if good else "problem", have or "not installed", "" if good else remedy)
        )
    return found


def python_version(have: str) -> Check:
    """Whether MindSpore 2.7.0 and grpoflow run on it."""
    good = SpecifierSet(PYTHONS).contains(have, prereleases=True)
    return Check("python", "ok" if good else "problem", have, "" if good else f"must be {PYTHONS}")


def cann(window: Window, root: Path = ASCEND, home: str | None = None) -> Check:
    """CANN's version, from the file that its installer leaves.

    Args:
        window: what the engine works with.
        root: where it is installed by default.
        home: ASCEND_HOME_PATH, which set_env.sh sets.
    """
    homes = [Path(home)] if home else [root / name for name in ("ascend-toolkit/latest", "latest", "cann")]
    files = [file for home in homes for file in sorted(home.glob("*-linux/ascend_toolkit_install.info"))]
    if not files:
        needed = f"CANN {window[1]} ({window[2]}); set_env.sh sets ASCEND_HOME_PATH"
        return Check("cann", "problem", f"none in {homes[0]}", needed)
    return _released(files[0], window)


def driver(window: Window, root: Path = ASCEND) -> Check:
    """The driver's version, from the file that its installer leaves."""
    file = root / "driver" / "version.info"
    if not file.is_file():
        needed = f"the cards' driver {window[1]} ({window[2]})"
        return Check("driver", "problem", f"{file}: not there", needed)
    return _released(file, window)


def _released(file: Path, window: Window) -> Check:
    """A file with a line such as version=8.2.RC1 against a window: older is refused, newer is only told.

    An older one lacks what the engine's operators call; of a newer one nothing is known.
    """
    name, wanted, why = window
    found = re.search(r"(?im)^version\s*=\s*((\d+\.\d+)\S*)", file.read_text("utf-8", errors="replace"))
    if found is None:
        return Check(name, "unknown", f"{file}: names no version", f"must be {wanted} ({why})")
    have = Version(found[2])
    told = f"{found[1]} ({file})"
    if SpecifierSet(wanted).contains(have):
        return Check(name, "ok", told)
    least = [Version(specifier.version) for specifier in SpecifierSet(wanted) if specifier.operator == ">="]
    if any(have < minimum for minimum in least):
        return Check(name, "problem", told, f"too old: must be {wanted} ({why})")
    return Check(name, "unknown", told, f"known to work: {wanted} ({why})")


def hosts(names: Sequence[str], ssh: Sequence[str], timeout_s: float = 15) -> list[Check]:
    """Whether ssh gets into each machine without a password; all are asked at the same time."""
    with ThreadPoolExecutor(max_workers=16) as pool:
        return list(pool.map(lambda name: _host(name, ssh, timeout_s), names))


def _host(name: str, ssh: Sequence[str], timeout_s: float) -> Check:
    try:
        done = subprocess.run(
            [*ssh, name, "true"], capture_output=True, text=True, timeout=timeout_s, stdin=subprocess.DEVNULL
        )
        told = next(iter(done.stderr.strip().splitlines()[-1:]), f"exit code {done.returncode}")
        if done.returncode == 0:
            return Check(f"host {name}", "ok", "ssh gets in")
    except (OSError, subprocess.SubprocessError) as error:
        told = (
            f"no answer after {timeout_s:.0f} s"
            if isinstance(error, subprocess.TimeoutExpired)
            else str(error)
        )
    address, port = _address(name, ssh)
    try:
        socket.create_connection((address, port), timeout=3).close()
        reached = f"port {port} answers, but ssh does not get in"
        remedy = "ssh-copy-id, and ssh there once by hand to accept its key"
    except OSError as error:
        reached = f"port {port}: {error.strerror or error}"
        remedy = "is it up, is its name right, is sshd running, is a firewall between?"
    return Check(f"host {name}", "problem", f"{reached} ({told})", f"launcher.hosts: {remedy}")


def _address(name: str, ssh: Sequence[str]) -> tuple[str, int]:
    """Where ssh would connect to, as its own configuration says."""
    try:
        shown = subprocess.run([*ssh, "-G", name], capture_output=True, text=True, timeout=5).stdout
    except (OSError, subprocess.SubprocessError):
        shown = ""
    values = dict(line.split(" ", 1) for line in shown.splitlines() if " " in line)
    port = values.get("port", "22")
    return values.get("hostname", name.rpartition("@")[2]), int(port) if port.isdigit() else 22


def memory(needed: int) -> Check:
    """This machine's memory against `needed` bytes."""
    have = memory_bytes()
    text, want = f"{have / 2**30:.1f} GiB", f"{needed / 2**30:.1f} GiB are needed"
    return Check("memory", "ok", text) if have >= needed else Check("memory", "problem", text, want)


def disk(directory: Path, needed: int) -> Check:
    """Free space where `directory` is, or will be."""
    there = next(path for path in (directory, *directory.parents) if path.exists())
    free = shutil.disk_usage(there).free
    text = f"{free / 2**30:.1f} GiB free at {there}"
    if not os.access(there, os.W_OK):
        return Check("disk", "problem", f"{there} cannot be written", "choose another store=")
    if free < needed:
        return Check("disk", "problem", text, f"{needed / 2**30:.1f} GiB are needed; choose another store=")
    return Check("disk", "ok", text)


def port(wanted: int | None) -> Check:
    """Whether msrun's workers can meet on a port of this machine."""
    try:
        return Check("port", "ok", f"127.0.0.1:{find_port('127.0.0.1', wanted)} can be bound")
    except LaunchError as error:
        return Check("port", "problem", f"{wanted or 'any'}", str(error))


def reachable(url: str, name: str, timeout_s: float = 10) -> Check:
    """Whether a hub answers, whatever it says; `name` is its address as it may be shown."""
    try:
        with urllib.request.urlopen(url, timeout=timeout_s):  # noqa: S310 (http(s) is checked by fetch.endpoint)
            return Check("hub", "ok", f"{name} answers")
    except urllib.error.HTTPError as error:
        return Check("hub", "ok", f"{name} answers {error.code}")
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", error)
        return Check("hub", "problem", f"{name}: {reason}", "set a proxy, fetch.endpoint, or model.path")
