"""Checkouts and interpreters of upstream: ./upstream, which `make upstream` fills, or variables' own."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.upstream.sources import ENVIRONMENTS, SOURCES

Find = Callable[[str], Path]


@pytest.fixture(scope="session")
def checkout():
    """The directory of one of SOURCES by its name; skips where it is absent."""

    def find(name):
        (source,) = (one for one in SOURCES if one.name == name)
        return _there(name, source.variable, source.home())

    return find


@pytest.fixture(scope="session")
def interpreter():
    """The interpreter of one of ENVIRONMENTS by its name; skips where it is absent."""

    def find(name):
        (environment,) = (one for one in ENVIRONMENTS if one.name == name)
        return _there(f"venv-{name}", environment.variable, environment.python())

    return find


def _there(name, variable, path):
    if not path.exists():
        assert variable not in os.environ, f"{variable}={path}: is not there"
        pytest.skip(f"{name} is not at {path}: make upstream, or set {variable}")
    return path
