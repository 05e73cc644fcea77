"""The source files of a user's reward `module:function`: its module and the modules that it imports.

The files are read and not imported: a plan must not run code. Their digests enter the fingerprints.
"""

import ast
import importlib.machinery
import importlib.util
import os
import sys
import sysconfig
from collections.abc import Iterator
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path

from stages.base.errors import ConfigError, Problem
from stages.rewards.config import BUILTIN, RewardConfig

PRODUCT_PACKAGES = frozenset({"stages", "pipeline", "launch", "conf", "hydra_plugins", "grpoflow"})
"""Packages of this project, which a stage's code version represents."""
REMEDY = "put its directory on PYTHONPATH, or start grpoflow in it"


def files_of(config: RewardConfig) -> tuple[Path, ...]:
    """Return the files of all user reward functions, ordered by module name; none for built-in ones.

    These are the function's module, the packages that contain it, and all modules that it imports, directly
    or indirectly, by statements or by importlib.import_module with a literal name. The standard library,
    installed packages (except the one with the function itself) and this project are left out. Files that a
    function reads while it runs are not included. Raise ConfigError if a module is not on a stage's search
    path.
    """
    problems, files = [], dict[str, Path]()
    for index, name in enumerate(config.functions):
        if name in BUILTIN:
            continue
        module = name.partition(":")[0]
        packages = _search(module)
        if not packages or packages[-1][0] != module:
            problems.append(Problem(f"reward.functions[{index}]", name, f"module {module} not found", REMEDY))
            continue
        _collect(module, files)
    if problems:
        raise ConfigError(problems)
    return tuple(dict.fromkeys(files[module] for module in sorted(files)))


def directory_of(module: str) -> Path | None:
    """Return the directory from which a user's module is imported; None if it is an installed package.

    Raise ConfigError if the module is not on a stage's search path.
    """
    packages = _search(module)
    if not packages:
        raise ConfigError([Problem("reward.functions", module, "module not found", REMEDY)])
    _, spec = packages[0]
    locations = list(spec.submodule_search_locations or ())
    file = Path(locations[0] if locations else spec.origin or "")
    return None if _is_installed(file) else file.parent


def _collect(module: str, files: dict[str, Path]) -> None:
    """Add the files of `module`, even if its package is installed, and of its imports."""
    package, pending, seen = _top(module), [module], set[str]()
    while pending:
        name = pending.pop()
        if name in seen or _top(name) in PRODUCT_PACKAGES:
            continue
        seen.add(name)
        for part, spec in _search(name):
            file = _file(spec)
            if part in files or file is None or (_is_installed(file) and _top(part) != package):
                continue
            files[part] = file
            pending += _imports(file, part, is_package=spec.submodule_search_locations is not None)


def _top(module: str) -> str:
    return module.partition(".")[0]


def _search(name: str) -> list[tuple[str, ModuleSpec]]:
    """Return (name, spec) of each package that contains a module, and of the module, as far as they exist.

    The path is that of `python -m stages`, on which the working directory comes first.
    """
    here = [] if os.environ.get("PYTHONSAFEPATH") else [os.getcwd()]
    path = [*here, *filter(None, sys.path)]
    specs, parts = [], name.split(".")
    for count in range(1, len(parts) + 1):
        module = ".".join(parts[:count])
        spec = PathFinder.find_spec(module, path)
        if spec is None:
            break
        specs.append((module, spec))
        path = list(spec.submodule_search_locations or ())
    return specs


def _file(spec: ModuleSpec) -> Path | None:
    """Return a module's file (or the zip archive that contains it); None if there is none."""
    if spec.origin is None:  # a package without __init__.py
        return None
    path = Path(spec.origin)
    return next((file for file in (path, *path.parents) if file.is_file()), None)


def _is_installed(file: Path) -> bool:
    standard = [Path(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib")]
    if not {"site-packages", "dist-packages"}.isdisjoint(file.parts):
        return True
    return any(root in file.parents for library in standard for root in (library, library.resolve()))


def _imports(file: Path, module: str, is_package: bool) -> Iterator[str]:
    """Yield the absolute names that a source file may import; nothing if it is malformed or not Python."""
    if file.suffix not in importlib.machinery.SOURCE_SUFFIXES:
        return
    try:
        tree = ast.parse(file.read_bytes())
    except (SyntaxError, ValueError, OSError):  # reported when a stage imports it
        return
    package = module if is_package else module.rpartition(".")[0]
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                yield from (alias.name for alias in names)
            case ast.ImportFrom(module=name, names=names, level=level):
                if base := _absolute("." * level + (name or ""), package):
                    yield base
                    yield from (f"{base}.{alias.name}" for alias in names)
            case ast.Call(
                func=ast.Name(id="import_module" | "__import__")
                | ast.Attribute(attr="import_module" | "__import__"),
                args=[ast.Constant(value=str(name)), *_],
            ):
                if base := _absolute(name, package):
                    yield base


def _absolute(name: str, package: str) -> str:
    """Return a module's absolute name; empty if it would lie above the top."""
    try:
        return importlib.util.resolve_name(name, package)
    except ImportError:
        return ""
