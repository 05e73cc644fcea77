"""Checks of an engine's requirements on this machine; nothing is started, installed or changed."""

import glob
import hashlib
import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from packaging.specifiers import SpecifierSet
from packaging.version import Version

from launch.errors import LaunchError
from launch.machine.environment import memory_bytes
from launch.process.job import engine_environment, find_port

Window = tuple[str, str, str]
"""Distribution, versions that work (empty for any), reason."""
PYTHONS = ">=3.10,<3.13"
"""grpoflow needs 3.10; MindSpore has wheels up to 3.12 (2.10.0), 2.7.0 up to 3.11."""
ASCEND, DEVICES = Path("/usr/local/Ascend"), Path("/dev")
"""Default directory of CANN and the driver, and directory of the cards' device files."""
ANSWER_S = 30.0
"""Time limit of an interpreter's answer."""
BUILT = "docs/install.md says how to install it: PyPI's vllm is built for other cards"
_VERSIONS = """
import json, sys
from importlib.metadata import PackageNotFoundError, version
versions = {"python": "%d.%d.%d" % sys.version_info[:3]}
for name in sys.argv[1:]:
    try:
        versions[name] = version(name)
    except PackageNotFoundError:
        versions[name] = None
print(json.dumps(versions))
"""


@dataclass(frozen=True)
class Check:
    """Result of one check."""

    name: str
    status: Literal["ok", "problem", "unknown"]
    """unknown if it could not be checked, which is no reason to refuse."""
    found: str
    remedy: str = ""
    """Requirement and how to meet it; empty if the check is ok."""
    python: str = ""
    """Interpreter for which pip can install what is missing; empty if pip cannot."""
    requirement: str = ""
    """What pip has to install."""
    rule: str = ""
    """The requirement without the command that meets it; empty where `remedy` has no command."""


def required(name: str, ok: bool, value: str, remedy: str) -> Check:
    """Return a check that is ok or, with its remedy, a problem."""
    return Check(name, "ok", value) if ok else Check(name, "problem", value, remedy)


def program(name: str, why: str) -> Check:
    """Check that a program can be executed on this machine."""
    path = shutil.which(name)
    return required(name, path is not None, path or "is no program here", why)


def interpreter(configured: str | None) -> str | None:
    """Return an engine's Python: the configured one, else the first on PATH that is not grpoflow's."""
    if configured is not None:
        path = os.path.abspath(configured) if "/" in configured else shutil.which(configured)
        return path or configured
    return shutil.which("python", path=engine_environment(os.environ)["PATH"])


def versions(python: str, packages: Sequence[str], python_path: str = "") -> Mapping[str, str | None] | None:
    """Return versions of `python` and of distributions in another interpreter, or None if it does not answer.

    Distributions that are not installed have the version None. `python_path` is the PYTHONPATH of the query.
    """
    environment = engine_environment(os.environ) | ({"PYTHONPATH": python_path} if python_path else {})
    command = [python, "-c", _VERSIONS, *packages]
    try:
        output = subprocess.check_output(
            command, stderr=subprocess.DEVNULL, timeout=ANSWER_S, env=environment, cwd="/"
        )
        return dict(json.loads(output))
    except (OSError, subprocess.SubprocessError, ValueError):
        return None


def script_output(python: str, script: Sequence[str], python_path: str, timeout_s: float) -> str | None:
    """Return what a script prints in another interpreter; None if it fails or exceeds `timeout_s`."""
    environment = engine_environment(os.environ) | ({"PYTHONPATH": python_path} if python_path else {})
    try:
        done = subprocess.run(
            [python, *script], capture_output=True, text=True, timeout=timeout_s, env=environment, cwd="/"
        )
    except (OSError, subprocess.SubprocessError, UnicodeDecodeError):
        return None
    return done.stdout if done.returncode == 0 else None


def state_of(python: str, *more: str) -> str:
    """Return a digest that changes when an interpreter is replaced, or a package installed or removed in it.

    `more` are texts that the digest covers, too.
    """
    prefix, real = Path(python).parent.parent, os.path.realpath(python)
    directories = sorted(glob.glob(str(prefix / "lib" / "python3*" / "site-packages")))
    times = [[path, os.stat(path).st_mtime_ns] for path in (python, real, *directories)]
    return hashlib.sha256(json.dumps([times, more]).encode()).hexdigest()


def packages(windows: Sequence[Window], installed: Callable[[str], str | None], python: str) -> list[Check]:
    """Return one check per distribution."""
    results = []
    for name, specifier, reason in windows:
        version = installed(name)
        ok = version is not None and SpecifierSet(specifier).contains(version, prereleases=True)
        found, requirement = version or "not installed", f"{name}{specifier}"
        rule = f"must be {requirement} ({reason})"
        if ok or name.startswith("vllm"):
            results.append(required(name, ok, found, f"{rule}; {BUILT}"))
        else:
            remedy = f"{rule}; {python} -m pip install '{requirement}'"
            results.append(Check(name, "problem", found, remedy, python, requirement, rule))
    return results


def python_version(version: str) -> Check:
    """Check that grpoflow, or an engine, runs on this Python."""
    ok = SpecifierSet(PYTHONS).contains(version, prereleases=True)
    return required("python", ok, version, f"must be {PYTHONS}")


def cann(window: Window, root: Path = ASCEND, home: str | None = None) -> Check:
    """Check CANN's version in the file that its installer writes; `home` is ASCEND_HOME_PATH (set_env.sh)."""
    homes = [Path(home)] if home else [root / name for name in ("ascend-toolkit/latest", "latest", "cann")]
    files = [file for home in homes for file in sorted(home.glob("*-linux/ascend_toolkit_install.info"))]
    if not files:
        needed = f"CANN {window[1]} ({window[2]}); set_env.sh sets ASCEND_HOME_PATH"
        return Check("cann", "problem", f"none in {homes[0]}", needed)
    return _version_file(files[0], window)


def driver(window: Window, root: Path = ASCEND) -> Check:
    """Check the driver's version in the file that its installer writes."""
    file = root / "driver" / "version.info"
    if not file.is_file():
        needed = f"the cards' driver {window[1]} ({window[2]})"
        return Check("driver", "problem", f"{file}: not there", needed)
    return _version_file(file, window)


def _version_file(file: Path, window: Window) -> Check:
    """Check a file with a line such as version=8.2.RC1.

    An older version is missing functions that the engine's operators call; newer ones were not tried.
    """
    name, specifier, reason = window
    match = re.search(r"(?im)^version\s*=\s*((\d+\.\d+)\S*)", file.read_text("utf-8", errors="replace"))
    if match is None:
        return Check(name, "unknown", f"{file}: names no version", f"must be {specifier} ({reason})")
    version, text = Version(match[2]), f"{match[1]} ({file})"
    if version in SpecifierSet(specifier):
        return Check(name, "ok", text)
    minimums = [Version(part.version) for part in SpecifierSet(specifier) if part.operator == ">="]
    if any(version < minimum for minimum in minimums):
        return Check(name, "problem", text, f"too old: must be {specifier} ({reason})")
    return Check(name, "unknown", text, f"known to work: {specifier} ({reason})")


def gpus(needed: int, devices: Path = DEVICES) -> Check:
    """Compare the number of NVIDIA cards, by their device files, with the number that a run occupies."""
    count = len(list(devices.glob("nvidia[0-9]*")))
    remedy = f"{needed} cards are needed; see nvidia-smi, and pass --gpus all to a container"
    return required("devices", count >= needed, f"{count} NVIDIA cards", remedy)


def cards(needed: int, devices: Path = DEVICES) -> Check:
    """Compare the number of Ascend cards, by their device files, with the number that a run occupies."""
    count = len(list(devices.glob("davinci[0-9]*")))
    remedy = f"{needed} cards are needed; see npu-smi info, and pass {devices}/davinci* to a container"
    return required("devices", count >= needed, f"{count} Ascend cards", remedy)


def memory(needed: int) -> Check:
    """Compare this machine's memory with `needed` bytes."""
    size, remedy = memory_bytes(), f"{needed / 2**30:.1f} GiB are needed"
    return required("memory", size >= needed, f"{size / 2**30:.1f} GiB", remedy)


def disk(directory: Path, needed: int) -> Check:
    """Compare the free space at `directory`, which may not exist yet, with `needed` bytes."""
    existing = next(path for path in (directory, *directory.parents) if path.exists())
    if not os.access(existing, os.W_OK):
        return Check("disk", "problem", f"{existing} cannot be written", "choose another store=")
    free = shutil.disk_usage(existing).free
    remedy = f"{needed / 2**30:.1f} GiB are needed; choose another store="
    return required("disk", free >= needed, f"{free / 2**30:.1f} GiB free at {existing}", remedy)


def port(number: int | None) -> Check:
    """Check that msrun's workers can use a port of this machine."""
    try:
        return Check("port", "ok", f"127.0.0.1:{find_port('127.0.0.1', number)} can be bound")
    except LaunchError as error:
        return Check("port", "problem", f"{number or 'any'}", str(error))
