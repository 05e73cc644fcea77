"""Checkouts of mindformers, and versions that work, for the engines that use it."""

import functools
import re
from pathlib import Path

from stages.base.errors import ConfigError, Problem
from stages.engines.engine import Checkout
from stages.engines.programs import fits

VERSIONS = ">=1.6.0,<1.7"
MAIN = Path("run_mindformer.py")
ARGUMENT = re.compile(r"""add_argument\(\s*["']--(\w+)["']""")
"""Argument in the source of an upstream program."""
_VERSION = re.compile(r"""\bversion\s*=\s*["']([\w.+-]+)["']""")


def checkout(
    setting: str, description: str, window: str = VERSIONS, package: str | None = "mindformers"
) -> Checkout:
    """Return the declaration of a checkout of mindformers, which `package` can replace."""
    judge = functools.partial(_judge, setting, window)
    return Checkout("mindformers", setting, judge, description, package, window if package else "")


def _judge(setting: str, window: str, home: str) -> str:
    """Return the version that a checkout's setup.py declares; raises ConfigError if it is not in `window`."""
    if not (Path(home) / MAIN).is_file():
        rule = f"must be a checkout of mindformers: it has no {MAIN}"
        raise ConfigError([Problem(setting, home, rule, "clone it and give its directory")])
    setup = Path(home) / "setup.py"
    declared = _VERSION.search(setup.read_text("utf-8", errors="replace")) if setup.is_file() else None
    if declared is None:
        return f"has {MAIN}"
    if not fits(declared[1], window):
        rule = f"setup.py says {declared[1]}: must be {window}"
        raise ConfigError([Problem(setting, home, rule, "check out a version that fits")])
    return declared[1]
