"""Packages that child processes need, the environment of engines, and the resources of this machine."""

import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

RULES = (
    ("mindspore", "==2.7.0", "the trainer is built and measured on 2.7.0"),
    ("numpy", "<2", "with numpy 2 single MindSpore operators fail with SystemError"),
    ("safetensors", ">=0.5,<0.8", "0.8.0 writes non-contiguous slices wrongly, silently"),
)
PYTHON_VARIABLES = ("VIRTUAL_ENV", "PYTHONPATH", "PYTHONHOME", "PYTHONSTARTUP")


def engine_environment(base: Mapping[str, str]) -> dict[str, str]:
    """Return `base` without grpoflow's virtual environment; an engine has its own packages."""
    excluded = Path(sys.prefix, "bin").resolve()
    entries = base.get("PATH", os.defpath).split(os.pathsep)
    path = [entry for entry in entries if Path(entry).resolve() != excluded]
    variables = {name: value for name, value in base.items() if name not in PYTHON_VARIABLES}
    return {**variables, "PATH": os.pathsep.join(path)}


def installed(package: str) -> str | None:
    """Return the installed version of a distribution, or None."""
    from importlib.metadata import PackageNotFoundError, version  # 20 ms, not needed by a finished plan

    try:
        return version(package)
    except PackageNotFoundError:
        return None


def problems(installed: Callable[[str], str | None] = installed) -> list[str]:
    """Return a line for each package that is missing or of a version known to break.

    Args:
        installed: returns the version of a package; tests replace it.
    """
    from launch.machine.checks import packages  # imports packaging, which a finished plan does not need

    checks = packages(RULES, installed, sys.executable)
    return [f"{check.name} {check.found}: {check.remedy}" for check in checks if check.status == "problem"]


def memory_bytes() -> int:
    """Return the memory of this machine, or of the container that this process runs in."""
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    try:
        limit = Path("/sys/fs/cgroup/memory.max").read_text(encoding="ascii").strip()
    except OSError:
        return machine
    return min(machine, int(limit)) if limit.isdigit() else machine
