"""Import of the user's code as it was planned: the bytes whose digests are in the fingerprint are executed.

A stage's process calls `require`. Each process that it starts and that imports stages.rewards does the same,
because VARIABLE names the stage's specification. Python's caches of compiled code are not read: they depend
on a file's time and size, which an edit may leave as they were.
"""

import hashlib
import importlib.util
import json
import os
import sys
from collections.abc import Mapping, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import SOURCE_SUFFIXES, ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType

from stages.base.errors import InputError

VARIABLE = "GRPOFLOW_PLANNED_CODE"
RULE = "has been changed, or is gone, since this run was planned"
REMEDY = "repeat the command to plan with the current file"


def require(specification: Path) -> None:
    """Check the code that a stage's specification lists, and let this process import no other.

    Raises:
        InputError: a file does not have its planned digest.
    """
    if _read(specification):
        os.environ[VARIABLE] = str(specification)
        install()


def install() -> None:
    """Do what `require` does for the specification in VARIABLE, if there is one."""
    specification = os.environ.get(VARIABLE)
    if specification is None or any(isinstance(finder, _Finder) for finder in sys.meta_path):
        return
    check()
    sys.meta_path.insert(0, _Finder(_read(Path(specification))))


def check() -> None:
    """Compare the files of the specification in VARIABLE, if there is one, with their planned digests.

    Raises:
        InputError: a file does not have its planned digest.
    """
    if specification := os.environ.get(VARIABLE):
        for file, digest in set(_read(Path(specification)).values()):
            checked_bytes(file, digest)


def checked_bytes(file: str, digest: str) -> bytes:
    """Return a file's content; raise InputError if its SHA-256 is not `digest`."""
    try:
        content = Path(file).read_bytes()
    except OSError as error:
        raise InputError(file, None, RULE, REMEDY) from error
    if hashlib.sha256(content).hexdigest() != digest:
        raise InputError(file, None, RULE, REMEDY)
    return content


def _read(specification: Path) -> dict[str, tuple[str, str]]:
    """Return module -> (file, digest) of a stage's specification."""
    code = json.loads(specification.read_text(encoding="utf-8")).get("code", {})
    return {module: (file, digest) for module, (file, digest) in code.items()}


class _Finder(MetaPathFinder):
    """Finds planned modules in their planned files, whatever the search path holds."""

    def __init__(self, code: Mapping[str, tuple[str, str]]) -> None:
        self._code = code

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return how to load a planned module; None for all others."""
        if fullname not in self._code:
            return None
        file, digest = self._code[fullname]
        if not file.endswith(tuple(SOURCE_SUFFIXES)):  # compiled, or in an archive
            checked_bytes(file, digest)
            return PathFinder.find_spec(fullname, path, target)
        loader = _Loader(fullname, file, digest)
        directory = [str(Path(file).parent)] if Path(file).stem == "__init__" else None
        return importlib.util.spec_from_file_location(
            fullname, file, loader=loader, submodule_search_locations=directory
        )


class _Loader(SourceFileLoader):
    """Compiles a source file whose content has the planned digest."""

    def __init__(self, fullname: str, path: str, digest: str) -> None:
        super().__init__(fullname, path)
        self._digest = digest

    def get_code(self, fullname: str) -> CodeType:
        """Return the compiled content of the file."""
        code: CodeType = self.source_to_code(checked_bytes(self.path, self._digest), self.path)
        return code
