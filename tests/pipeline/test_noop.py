"""A run with nothing to do: what it tells and records, and what it does without."""

import re
import subprocess
import sys

import pytest

from pipeline.plan.target import ALL_STAGES
from pipeline.run.run import begin
from pipeline.store import history
from tests.pipeline.artifacts import complete

HEAVY = (
    "luigi", "hydra", "numpy", "filelock", "yaml", "importlib.metadata", "asyncio", "fsspec",
    "s3fs", "botocore", "paramiko", "pipeline.store.remote.remote",
)  # fmt: skip
"""Modules that take 20 ms or more, or that only other commands need."""
PROGRAM = f"""
import sys
from pipeline.cli import main
code = main(sys.argv[1:])
print([name for name in {HEAVY} if name in sys.modules], file=sys.stderr)
sys.exit(code)
"""


@pytest.fixture
def store(tmp_path, monkeypatch):
    """A finished one, whose configuration was composed before."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return complete([f"store={tmp_path / 'store'}"])[1]


def exited(*command):
    done = subprocess.run([sys.executable, *command], capture_output=True, text=True)
    return done.returncode, re.sub(r"run=[\w-]+", "run=ID", done.stdout), done.stderr


def test_cached_run_imports_little_and_prints_the_same_as_luigi(store):
    directory = f"store={store.root}"
    exited("-c", PROGRAM, "plan", directory)  # composes the configuration in this environment
    code, out, heavy = exited("-c", PROGRAM, "run", directory)
    assert (code, heavy) == (0, "[]\n")
    (report,) = (store.root / "report").iterdir()
    assert out.endswith(f"run=ID report={report / 'index.html'}\n")
    assert exited("-m", "luigi", "--module", "pipeline", "RunGRPO", "--overrides", directory) == (0, out, "")
    assert exited("-c", PROGRAM, "plan", directory)[::2] == (0, "[]\n")
    states = [run.state for run in history.runs(store.root).values()]
    assert states == ["finished", "finished"]


def test_artifact_removed_after_planning_is_missing(store):
    run = begin([f"store={store.root}"], None, ALL_STAGES)
    assert not run.missing()
    store.quarantine(run.plan.spec("split").key)
    assert run.missing()
