"""What every test finds as the first one did, and how `make test` deals the tests out to its processes."""

import multiprocessing
import os
import re
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

import stages.weights.strategy.messages  # noqa: F401  before ray: which protobuf there is, its first import decides

PACED = Path(__file__).parent / "data" / "paced"
UMASK = os.umask(0o022)
os.umask(UMASK)
MACHINES = re.compile(r"(_nodes|launch/test_(nodes|slurm|ray))\.py$")
"""Files whose tests' addresses and daemons are this machine's: one process runs them."""
UPSTREAM_RUNS = re.compile(r"upstream/mindrlhf/test_(run|standin)\.py$")
"""Files that look at the same runs of mindrlhf, of minutes each."""
LONGEST = re.compile(
    r"tests/(e2e|launch|stages/grpo)/|/test_(browser|sft|users_files|learning|variants|training)\.py$"
)
"""Files that are begun first, so that no process waits for another at the end."""
MAKER = "tests/e2e/test_chain.py"
"""The file that makes the finished run of tests/e2e/conftest.py; the others that look at it come later."""


def pytest_configure(config):
    """Let msrun rest while it waits, in whatever process a test starts, and let no process take both cores.

    HYPOTHESIS_PROFILE=thorough: more examples, and new ones each time.
    """
    config.option.loadscopereorder = False  # its order is by number of tests
    paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    if str(PACED) not in paths:
        os.environ["PYTHONPATH"] = os.pathsep.join([str(PACED), *filter(None, paths)])
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    common = {"deadline": None, "suppress_health_check": list(HealthCheck), "print_blob": True}
    settings.register_profile("fast", max_examples=15, derandomize=True, **common)
    settings.register_profile("thorough", max_examples=1000, **common)
    settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "fast"))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """A file's tests stay together, and with them what they share; so do those that share the network.

    By groups this cannot be said: with pytest 9.2, --dist=loadgroup of pytest-xdist 3.8 deals out each test
    alone, silently (pytest-dev/pytest-xdist, issue 1386).
    """
    from xdist.scheduler import LoadFileScheduling

    class ByFile(LoadFileScheduling):
        def _split_scope(self, nodeid):
            file = super()._split_scope(nodeid)
            together = (shared.pattern for shared in (MACHINES, UPSTREAM_RUNS) if shared.search(file))
            return next(together, file)

    return ByFile(config, log)


def pytest_collection_modifyitems(items):
    """The machines' tests first, then what takes long; of this last what waits for another file's run."""
    files = {item: item.nodeid.partition("::")[0] for item in items}
    shared = {files[item] for item in items if "finished" in getattr(item, "fixturenames", ())} - {MAKER}

    def place(item):
        file = files[item]
        return not MACHINES.search(file), not LONGEST.search(file), file in shared

    items.sort(key=place)


@pytest.fixture(autouse=True)
def no_columns(monkeypatch):
    """Text is as wide as where neither a terminal nor whoever runs the tests says how wide."""
    monkeypatch.delenv("COLUMNS", raising=False)


def pytest_runtest_teardown():
    """Give back what libraries take from a process that many tests share.

    How processes are started: MindSpore's transform_checkpoints forks, and needs to. Hypothesis (6.170,
    _hypothesis_ftz_detector.py) leaves "spawn" behind when floats are drawn after a library has switched
    subnormal numbers off, as MindSpore's and torch's kernels do.

    The umask: transform_checkpoints leaves 077 behind (MindSpore 2.7.0).
    """
    os.umask(UMASK)
    if multiprocessing.get_start_method(allow_none=True) not in (None, "fork"):
        multiprocessing.set_start_method("fork", force=True)
