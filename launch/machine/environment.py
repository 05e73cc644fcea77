"""The memory of this machine, and the packages that stages need in grpoflow's own environment."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from launch.machine.checks import Check, Window

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


RULES: tuple[Window, ...] = (
    ("numpy", ">=1.26,<3", "older releases were not tried"),
    ("safetensors", ">=0.5,<0.8", "0.8.0 writes non-contiguous slices wrongly, silently"),
)
"""Versions that every stage works with."""
MINDSPORE: Window = ("mindspore", ">=2.7.0,<2.11", "the trainer was tried with 2.7.0 and 2.10.0")
BEFORE_NUMPY_2: tuple[Window, Window] = (
    ("mindspore", "<2.10", ""),
    ("numpy", ">=1.26,<2", "with numpy 2 single operators of MindSpore below 2.10 fail with SystemError"),
)
"""If the first holds, the second must, instead of its rule in RULES."""
EXTRAS = {"mindspore": "local"}
"""Package that grpoflow does not require -> the extra that installs it."""


def installed(package: str) -> str | None:
    """Return the installed version of a distribution, or None."""
    from importlib.metadata import PackageNotFoundError, version  # 20 ms, not needed by a finished plan

    try:
        return version(package)
    except PackageNotFoundError:
        return None


def is_present(package: str) -> bool:
    """Return True if a package of EXTRAS can be imported; faster than `installed`, and imports nothing."""
    return find_spec(package) is not None


def install_command(package: str) -> str:
    """Return the command that installs a package of EXTRAS next to grpoflow."""
    return f"{sys.executable} -m pip install 'grpoflow[{EXTRAS[package]}]'"


def package_checks(needed: Iterable[str], installed: Callable[[str], str | None] = installed) -> list[Check]:
    """Check the versions of grpoflow's own packages, and of those of EXTRAS that are `needed`."""
    from launch.machine import checks  # imports packaging, which a finished plan does not need

    # the last one of a package counts
    windows = {window[0]: window for window in _windows(needed, installed)}
    return [
        checks.required(
            check.name, False, check.found, f"{check.name}{MINDSPORE[1]}: {install_command(check.name)}"
        )
        if check.name in EXTRAS and installed(check.name) is None
        else check
        for check in checks.packages(list(windows.values()), installed, sys.executable)
    ]


def _windows(needed: Iterable[str], installed: Callable[[str], str | None]) -> Iterator[Window]:
    """Yield the versions that work together."""
    from packaging.specifiers import SpecifierSet

    yield from RULES
    if MINDSPORE[0] in needed:
        yield MINDSPORE
        (name, versions, _), numpy = BEFORE_NUMPY_2
        have = installed(name)
        if have is not None and SpecifierSet(versions).contains(have, prereleases=True):
            yield numpy
