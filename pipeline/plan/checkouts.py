"""Checks of what an engine needs on this machine: checkouts, interpreters and scripts."""

import functools
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from launch.machine import checks
from launch.machine.checks import Check
from launch.nodes.start import script_words
from pipeline.cache import recall, remember
from pipeline.config.sections import Config
from pipeline.errors import ConfigError, Problem
from stages.base import identity
from stages.engines.engine import Checkout, Engine
from stages.engines.programs import fits


def check(checkout: Checkout, home: str | None, have: str | None = None) -> Check:
    """Check the checkout at `home`, or the installed version `have` of its distribution."""
    remedy = f"{checkout.setting}: {checkout.description}"
    if home is None:
        if have is None:
            value = "not installed" if checkout.package else f"{checkout.setting} is not set"
            return Check(checkout.name, "problem", value, remedy)
        if fits(have, checkout.window):
            return Check(checkout.name, "ok", have)
        return Check(checkout.name, "problem", have, f"must be {checkout.package}{checkout.window}; {remedy}")
    try:
        return Check(checkout.name, "ok", f"{home}: {checkout.judge(home)}")
    except ConfigError as error:
        rules = "; ".join(problem.rule for problem in error.problems)
        specific = next((problem.remedy for problem in error.problems if problem.remedy), None)
        remedy = f"{checkout.setting}: {specific}" if specific else remedy
        return Check(checkout.name, "problem", f"{home}: {rules}", remedy)


def problems(engine: Engine[Any], config: Config) -> Iterator[Problem]:
    """Yield the problems of an engine's checkouts, interpreters and scripts.

    Only this machine's files are checked; with another launcher or a container they are elsewhere.
    """
    yield from _contracts(engine, config)
    if config.launcher.name == "local" and not engine.settings_of(config).container:
        yield from _files(engine, config)


def _contracts(engine: Engine[Any], config: Config) -> Iterator[Problem]:
    """Yield a problem for each checkout of another program, or of another version than the contract."""
    contract = engine.contract(config)
    for number, checkout in enumerate(engine.needed(config)):
        home = getattr(engine.settings_of(config), checkout.key)
        if home is None or not Path(home).is_dir():
            continue
        result = _contract(checkout, home)
        if isinstance(result, ConfigError):
            yield from result.problems
        elif number == 0 and contract is not None and result != contract:
            rule = f"contradicts {checkout.setting}={home}, which is a checkout of contract {result}"
            yield Problem(f"{engine.section}.contract", contract, rule, "leave it auto")


def _files(engine: Engine[Any], config: Config) -> Iterator[Problem]:
    """Yield a problem for each missing directory, interpreter and script, and for missing packages."""
    settings, section = engine.settings_of(config), engine.section
    for key in identity.marked(type(settings), identity.CheckoutDirectory):
        home = getattr(settings, key)
        if home is not None and not Path(home).is_dir():
            yield Problem(f"{section}.{key}", home, "is not a directory", "give a checkout's")
    for key in ("python", "convert_python"):
        program = getattr(settings, key, None)
        if program is None or ("/" not in program and settings.env_scripts):  # a script may set PATH
            continue
        path, search = shutil.which(program), settings.env.get("PYTHONPATH", "")
        if path is None:
            rule = "is no program that can be executed here"
            yield Problem(f"{section}.{key}", program, rule, "give an interpreter's path")
        elif key == "python" and (problem := _missing_packages(path, engine.imports, search)):
            yield Problem(f"{section}.{key}", program, *problem)
    for number, script in enumerate(settings.env_scripts):
        if not Path(script_words(script)[0]).is_file():
            path = f"{section}.env_scripts[{number}]"
            yield Problem(path, script, "is not a file", "give a script to source")


@functools.cache
def _missing_packages(python: str, packages: tuple[str, ...], search: str) -> tuple[str, str] | None:
    """Return rule and remedy if an interpreter does not run or lacks packages.

    It is asked once until it or its packages change.
    """
    key = checks.state_of(python, *packages, search)
    versions = recall("versions", key)
    if versions is None:
        versions = checks.versions(python, packages, python_path=search)
        if versions is None:
            return "does not answer", "give an interpreter of Python 3.10, 3.11 or 3.12"
        remember("versions", key, dict(versions))
    if missing := [name for name in packages if versions.get(name) is None]:
        remedy = "give the interpreter of the engine's environment (docs/install.md), or install it there"
        return f"has no {' and no '.join(missing)}", remedy
    return None


@functools.cache
def _contract(checkout: Checkout, home: str) -> str | ConfigError:
    """Return the contract of a checkout, or the error; read once for all points of a sweep."""
    try:
        return (checkout.recognise or checkout.judge)(home)
    except ConfigError as error:
        return error
