"""Is what a child process needs installed, in versions that work? Reads metadata, imports nothing."""

import os
import sys
from collections.abc import Callable
from pathlib import Path

RULES = (
    ("mindspore", "==2.7.0", "the trainer is built and measured on 2.7.0"),
    ("numpy", "<2", "with numpy 2 single MindSpore operators fail with SystemError"),
    ("safetensors", ">=0.5,<0.8", "0.8.0 writes non-contiguous slices wrongly, silently"),
)


def installed(package: str) -> str | None:
    """The installed version of a distribution, or None."""
    from importlib.metadata import PackageNotFoundError, version  # here: a plan of what is done asks for none

    try:
        return version(package)
    except PackageNotFoundError:
        return None


def problems(installed: Callable[[str], str | None] = installed) -> list[str]:
    """One line per package that is missing or of a version known to break; empty when all is well.

    Args:
        installed: how to learn a version, so that rules can be tested without installing.
    """
    from packaging.specifiers import SpecifierSet

    lacking = []
    for package, wanted, reason in RULES:
        have = installed(package)
        if have is None:
            lacking.append(f"{package}: not installed; {_remedy(package, wanted)}")
        elif have not in SpecifierSet(wanted):
            lacking.append(f"{package}={have}: must be {wanted} ({reason}); {_remedy(package, wanted)}")
    return lacking


def _remedy(package: str, wanted: str) -> str:
    return f"{sys.executable} -m pip install '{package}{wanted}'"


def cards_here() -> int:
    """Ascend devices of this machine; without any, its cores, since workers on a CPU take one each."""
    return len(list(Path("/dev").glob("davinci[0-9]*"))) or os.cpu_count() or 1


def memory_bytes() -> int:
    """Memory of this machine, or of the container that this process runs in."""
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    try:
        limit = Path("/sys/fs/cgroup/memory.max").read_text(encoding="ascii").strip()
    except OSError:
        return machine
    return min(machine, int(limit)) if limit.isdigit() else machine
