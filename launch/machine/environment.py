"""The memory of this machine, and the packages that child processes need."""

import contextlib
import os
import sys
from collections.abc import Callable
from pathlib import Path

CGROUP = Path("/sys/fs/cgroup")
LIMITS = ("memory.max", "memory/memory.limit_in_bytes")
"""Files with a container's limit: of version 2 and of version 1, the default of older systems."""


def memory_bytes(cgroup: Path = CGROUP) -> int:
    """Return the memory of this machine, or of the container that this process runs in."""
    sizes = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    for name in LIMITS:
        with contextlib.suppress(OSError, ValueError):  # no such file, or "max"
            sizes.append(int((cgroup / name).read_text(encoding="ascii")))
    return min(sizes)


RULES = (
    ("mindspore", "==2.7.0", "the trainer is built and measured on 2.7.0"),
    ("numpy", "<2", "with numpy 2 single MindSpore operators fail with SystemError"),
    ("safetensors", ">=0.5,<0.8", "0.8.0 writes non-contiguous slices wrongly, silently"),
)


def installed(package: str) -> str | None:
    """Return the installed version of a distribution, or None."""
    from importlib.metadata import PackageNotFoundError, version  # 20 ms, not needed by a finished plan

    try:
        return version(package)
    except PackageNotFoundError:
        return None


def problems(installed: Callable[[str], str | None] = installed) -> list[str]:
    """Return a line for each package that `installed` does not have in a version that works."""
    from launch.machine.checks import packages  # imports packaging, which a finished plan does not need

    checks = packages(RULES, installed, sys.executable)
    return [f"{check.name} {check.found}: {check.remedy}" for check in checks if check.status == "problem"]
