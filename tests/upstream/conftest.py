"""Checkouts and interpreters of upstream in ./upstream, which `make upstream` fills."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.upstream.sources import ENVIRONMENTS, SOURCES

Find = Callable[[str], Path]


@pytest.fixture(scope="session")
def checkout():
    """Return a function: name of one of SOURCES -> its directory; it skips the test if there is none."""
    return lambda name: _existing({source.name: source.home for source in SOURCES}[name])


@pytest.fixture(scope="session")
def interpreter():
    """Return a function: name of one of ENVIRONMENTS -> its interpreter; it skips the test without one."""
    return lambda name: _existing({item.name: item.python for item in ENVIRONMENTS}[name])


def _existing(path):
    if not path.exists():
        pytest.skip(f"{path} is missing: make upstream")
    return path
