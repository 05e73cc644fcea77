"""Packages that child processes need."""

import sys
from collections.abc import Callable

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
