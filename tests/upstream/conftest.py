"""Checkouts and interpreters of upstream in ./upstream, which `make upstream` fills."""

import pytest

from tests.upstream import sources


@pytest.fixture(scope="session")
def checkout():
    """Return a function: name of a source -> its directory; it skips the test if there is none."""
    return lambda name: _existing(sources.UPSTREAM / name)


@pytest.fixture(scope="session")
def interpreter():
    """Return a function: name of an environment -> its interpreter; it skips the test without one."""
    return lambda name: _existing(sources.interpreter(name))


@pytest.fixture(scope="session", params=["wheel", "checkout"])
def mindformers(request, checkout, interpreter):
    """Return a directory that contains the package mindformers: 1.6.0 from PyPI, and 051d65f."""
    if request.param == "checkout":
        return checkout("mindformers-051d65f")
    (packages,) = interpreter("mindspore").parents[1].glob("lib/python3.*/site-packages")
    return packages


def _existing(path):
    if not path.exists():
        pytest.skip(f"{path} is missing: make upstream")
    return path
