"""The packages of an engine's interpreter, queried before a run needs them."""

import hashlib
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence

from launch.machine import checks
from pipeline.cache import recall, remember
from pipeline.errors import Problem


def missing(
    setting: str, python: str, packages: Sequence[str], variables: Mapping[str, str]
) -> Iterator[Problem]:
    """Yield a problem if an interpreter does not run or does not have all of `packages`.

    A result without problems is cached by the interpreter's path and modification time. Any other is queried
    again, because the package may be installed meanwhile.

    Args:
        setting: the key that names the interpreter.
        python: its path, or its name on PATH.
        packages: distributions that it must have.
        variables: the engine's environment variables; only PYTHONPATH is used.
    """
    path = os.path.abspath(shutil.which(python) or python)
    search = variables.get("PYTHONPATH", "")
    try:
        times = [os.lstat(path).st_mtime_ns, os.stat(path).st_mtime_ns]
    except OSError as error:
        yield Problem(setting, python, f"cannot be read: {error.strerror}", "give an interpreter's path")
        return
    key = hashlib.sha256(repr((path, times, sorted(packages), search)).encode()).hexdigest()
    if recall("interpreter", key):
        return
    versions = checks.versions(path, packages, python_path=search)
    if versions is None:
        yield Problem(setting, python, "does not answer", "give an interpreter of Python 3.10 or 3.11")
        return
    absent = [name for name in packages if versions[name] is None]
    if not absent:
        remember("interpreter", key, True)
        return
    remedy = "give the interpreter of the engine's environment (docs/install.md), or install it there"
    yield Problem(setting, python, f"has no {' and no '.join(absent)}", remedy)
