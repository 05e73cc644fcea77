"""Checkouts of mindformers, and versions that work, for the engines that use it."""

import functools
import re
from pathlib import Path

from packaging.specifiers import SpecifierSet
from packaging.version import InvalidVersion, Version

from stages.base.errors import ConfigError, Problem
from stages.engines.declaration import Checkout, Known, Window
from stages.engines.programs import mismatch

NUMPY: Window = ("numpy", "<2", "with numpy 2 single MindSpore operators fail with SystemError")
SAFETENSORS: Window = (
    "safetensors", "<0.8", "0.8.0 makes MindSpore write non-contiguous slices wrongly, silently",
)  # fmt: skip
CANN: Window = ("cann", ">=8.1,<8.3", "mindrlhf's README names 8.1; MindSpore 2.7.0 goes with 8.2.RC1")
DRIVER: Window = ("driver", ">=24.1", "CANN 8.1 and 8.2 came out with drivers 24.1 and later")
VERSIONS = ">=1.6.0,<1.7"
"""6a52b43, 051d65f and v1.6.0, which mindrlhf's users pin, all call themselves 1.6.0."""
KNOWN = Known(
    (("mindspore", "==2.7.0", "mindformers 1.6.0 wants ~=2.7.0rc1"), NUMPY, SAFETENSORS), CANN, DRIVER
)
MAIN = Path("run_mindformer.py")
ARGUMENT = re.compile(r"""add_argument\(\s*["']--(\w+)["']""")
"""Argument in the source of an upstream program."""
_VERSION = re.compile(r"""\bversion\s*=\s*["']([\w.+-]+)["']""")


def checkout(
    setting: str, description: str, window: str = VERSIONS, package: str | None = "mindformers"
) -> Checkout:
    """Return the declaration of a checkout of mindformers.

    Args:
        setting: key of its directory.
        description: what the directory must be.
        window: versions that work.
        package: distribution that can replace it; None: there is none.
    """
    judge = functools.partial(_judge, setting, window)
    return Checkout("mindformers", setting, judge, description, package, window if package else "")


def fits(version: str, window: str) -> bool:
    """Return True if `version` is valid and in `window`."""
    try:
        return SpecifierSet(window).contains(Version(version), prereleases=True)
    except InvalidVersion:
        return False


def _judge(setting: str, window: str, home: str) -> str:
    """Return the version that a checkout's setup.py declares, if there is one.

    Raises:
        ConfigError: it has no run_mindformer.py, or its version is not in `window`.
    """
    if not (Path(home) / MAIN).is_file():
        rule = mismatch(home, "mindformers", f"it has no {MAIN}")
        raise ConfigError([Problem(setting, home, rule, "clone it and give its directory")])
    setup = Path(home) / "setup.py"
    declared = _VERSION.search(setup.read_text("utf-8", errors="replace")) if setup.is_file() else None
    if declared is None:
        return f"has {MAIN}"
    if not fits(declared[1], window):
        rule = f"setup.py says {declared[1]}: must be {window}"
        raise ConfigError([Problem(setting, home, rule, "check out a version that fits")])
    return declared[1]
