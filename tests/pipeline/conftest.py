"""Fixtures of the command line."""

import json

import pytest

from pipeline.cli import main
from pipeline.store.store import Store


@pytest.fixture
def store(tmp_path):
    """A store without artifacts."""
    return Store(tmp_path)


@pytest.fixture
def shown(capsys):
    """Run a command to an exit code; return its stdout and stderr."""

    def run(*words, code=0):
        capsys.readouterr()
        assert main([*words]) == code
        return capsys.readouterr()

    return run


@pytest.fixture
def printed(shown):
    """Run a command with --json to an exit code; return what it printed."""
    return lambda *words, code=0: json.loads(shown(*words, "--json", code=code).out)


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """The directory of grpoflow's cache, empty for this test."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "grpoflow"
