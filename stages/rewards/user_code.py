"""The user's code, such as reward functions `module:function`: modules, and modules and packages they import.

The files are read and not imported: a plan must not run code. Their digests, and the packages' versions,
enter the fingerprints. Whether a file is the user's depends on where it is, not on its module's name.
"""

import ast
import functools
import importlib.machinery
import importlib.util
import os
import re
import sys
import sysconfig
from collections.abc import Iterator, Mapping, Sequence
from importlib import metadata
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path

from stages.base.errors import ConfigError, Problem
from stages.base.graph import UserCode
from stages.rewards.config import BUILTIN, RewardConfig, uses

ROOT = Path(__file__).resolve().parents[2]
PRODUCT_PACKAGES = ("conf", "grpoflow", "hydra_plugins", "launch", "pipeline", "stages")
"""Packages of this project in ROOT, which a stage's code version represents."""
REMEDY = "put its directory on PYTHONPATH, or start grpoflow in it"
MATHS_PACKAGE = "math-verify"
"""Package that the built-in reward maths calls."""


def user_code(config: RewardConfig, further: Mapping[str, str] | None = None) -> UserCode | None:
    """Return the code that the reward functions consist of; None if all of it is this project's.

    These are the modules of the user's functions, the packages that contain them, and all modules that they
    import, directly or indirectly, by statements or by importlib.import_module with a literal name; the files
    of reward.files; and the versions of the installed packages that these modules import themselves. The
    standard library and this project are left out.

    Args:
        config: section reward.
        further: key of the configuration -> `module:name` of other code of the user that a stage imports.

    Raises:
        ConfigError: a module is not on a stage's search path, or has the name of one of this project's; or
            one of reward.files is no file.
    """
    problems, modules = [], dict[str, Path]()
    names = {f"reward.functions[{i}]": name for i, name in enumerate(config.functions) if name not in BUILTIN}
    for key, name in (names | dict(further or {})).items():
        module = name.partition(":")[0]
        try:
            packages = _search(module)
            if not packages or packages[-1][0] != module:
                problems.append(Problem(key, name, f"module {module} not found", REMEDY))
                continue
            _collect(module, modules)
        except _NameTakenError as error:
            problems.append(Problem(key, name, str(error), "rename it"))
    files = tuple(map(Path, config.files))
    for index, file in enumerate(files):
        if not file.is_file():
            rule = "is a directory" if file.is_dir() else "does not exist"
            problems.append(
                Problem(f"reward.files[{index}]", file, rule, "name the files that functions read")
            )
    if problems:
        raise ConfigError(problems)
    versions = _versions(modules)
    if uses(config, "maths"):
        versions |= _version_of(MATHS_PACKAGE)
    code = UserCode(modules, files, dict(sorted(versions.items())))
    return code if code.external or code.packages else None


def file_of(module: str) -> Path | None:
    """Return the file of a module on a stage's search path; None if there is none, or the name is taken."""
    try:
        packages = _search(module)
    except _NameTakenError:
        return None
    return _file(packages[-1][1]) if packages and packages[-1][0] == module else None


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
        if name in seen:
            continue
        seen.add(name)
        for part, spec in _search(name):
            file = _file(spec)
            if part in files or file is None or _is_ours(file):
                continue
            if _is_installed(file) and _top(part) != package:
                continue
            files[part] = file
            pending += _imports(file, part, is_package=spec.submodule_search_locations is not None)


def _top(module: str) -> str:
    return module.partition(".")[0]


class _NameTakenError(Exception):
    """A user's module has the name of one of this project's packages, which is imported instead."""

    def __init__(self, module: str, file: Path) -> None:
        super().__init__(f"{file} is not imported: grpoflow has a package {_top(module)} of its own")


def _search(name: str) -> list[tuple[str, ModuleSpec]]:
    """Return (name, spec) of each package that contains a module, and of the module, as far as they exist.

    The path is that of `python -m stages`, on which the working directory comes first.

    Raises:
        _NameTakenError: it is a user's module with the name of one of this project's packages.
    """
    here = [] if os.environ.get("PYTHONSAFEPATH") else [os.getcwd()]
    path = [*here, *filter(None, sys.path)]
    if _top(name) not in PRODUCT_PACKAGES:
        return _find(name, path)
    ours = _find(name, [str(ROOT)])
    others = _find(name, [entry for entry in path if Path(entry).resolve() != ROOT])
    file = _file(others[-1][1]) if others else None
    if file is not None and len(others) >= len(ours) and not _is_ours(file):
        raise _NameTakenError(name, file)
    return ours


def _find(name: str, path: list[str]) -> list[tuple[str, ModuleSpec]]:
    specs, parts = [], name.split(".")
    for count, part in enumerate(parts, 1):
        spec = PathFinder.find_spec(part, path)  # of a full name, the packages would have to be imported
        if spec is None:
            break
        specs.append((".".join(parts[:count]), spec))
        path = list(spec.submodule_search_locations or ())
    return specs


def _file(spec: ModuleSpec) -> Path | None:
    """Return a module's file (or the zip archive that contains it); None if there is none."""
    if spec.origin is None:  # a package without __init__.py
        return None
    path = Path(spec.origin)
    return next((file for file in (path, *path.parents) if file.is_file()), None)


def _is_ours(file: Path) -> bool:
    return any(ROOT / name in file.resolve().parents for name in PRODUCT_PACKAGES)


def _versions(modules: Mapping[str, Path]) -> dict[str, str]:
    """Return the versions of the installed packages that modules import, by their names at PyPI."""
    known = {*sys.stdlib_module_names, *PRODUCT_PACKAGES, *map(_top, modules)}
    names = {
        _top(name)
        for module, file in modules.items()
        for name in _imports(file, module, is_package=file.stem == "__init__")
    }
    versions = dict[str, str]()
    for name in sorted(names - known):
        versions |= _version_of(name) or {
            key: version
            for package in _providers().get(name, ())
            for key, version in _version_of(package).items()
        }
    return versions


def _version_of(package: str) -> dict[str, str]:
    """Return {name: version} of an installed package; nothing if there is none of that name."""
    try:
        version = metadata.version(package)
    except metadata.PackageNotFoundError:
        return {}
    return {re.sub(r"[-_.]+", "-", package).lower(): version}


@functools.cache
def _providers() -> Mapping[str, Sequence[str]]:
    """Return the packages that provide a module, where they have another name; takes 0.1 s."""
    return metadata.packages_distributions()


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
