"""Shared state that is restored after each test, and the distribution of tests to processes."""

import multiprocessing
import os
import re
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# ray imports protobuf first in some tests; `import mindspore` works with its Python implementation only
os.environ.setdefault("PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION", "python")

PACED = Path(__file__).parent / "data" / "paced"
UMASK = os.umask(0o022)
os.umask(UMASK)
MACHINES = re.compile(r"(_nodes|_jobs_ray|launch/test_(nodes|slurm|ray))\.py$")
"""Files that use fixed addresses or daemons of this machine; one process runs them all."""
UPSTREAM_RUNS = re.compile(r"upstream/mindrlhf/test_(run|standin)\.py$")
"""Files that share runs of mindrlhf, which take minutes."""
LONGEST = re.compile(
    r"tests/(e2e|launch|stages/grpo)/|/test_(browser|users_files|learning|variants|training|mathematics)\.py$"
)
"""Slow files, which start first so that all processes end at about the same time."""
MAKER = "tests/e2e/test_chain.py"
"""File that creates the finished run of tests/e2e/conftest.py; other files that use it run later."""


def pytest_configure(config):
    """Make msrun poll less often, limit threads, and choose the Hypothesis profile.

    HYPOTHESIS_PROFILE=thorough runs more examples, different ones each time.
    """
    config.option.loadscopereorder = False  # xdist would order files by their number of tests
    paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    if str(PACED) not in paths:
        os.environ["PYTHONPATH"] = os.pathsep.join([str(PACED), *filter(None, paths)])
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    os.environ.pop("COLUMNS", None)  # output has its default width
    common = {"deadline": None, "suppress_health_check": list(HealthCheck), "print_blob": True}
    settings.register_profile("fast", max_examples=15, derandomize=True, **common)
    settings.register_profile("thorough", max_examples=1000, **common)
    settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "fast"))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Run the tests of a file, and of files that share resources, in one process.

    --dist=loadgroup of pytest-xdist 3.8 ignores groups with pytest 9.2 (pytest-dev/pytest-xdist issue 1386).
    """
    from xdist.scheduler import LoadFileScheduling

    class ByFile(LoadFileScheduling):
        def _split_scope(self, nodeid):
            file = super()._split_scope(nodeid)
            scopes = (shared.pattern for shared in (MACHINES, UPSTREAM_RUNS) if shared.search(file))
            return next(scopes, file)

    return ByFile(config, log)


def pytest_collection_modifyitems(items):
    """Order: files with fixed addresses, slow files, files that wait for the run of another file."""
    files = {item: item.nodeid.partition("::")[0] for item in items}
    shared = {files[item] for item in items if "finished" in getattr(item, "fixturenames", ())} - {MAKER}

    def rank(item):
        file = files[item]
        return not MACHINES.search(file), not LONGEST.search(file), file in shared

    items.sort(key=rank)


def pytest_runtest_teardown():
    """Restore the umask and the start method of processes, which libraries change.

    MindSpore's transform_checkpoints needs "fork" and leaves the umask 077 (MindSpore 2.7.0). Hypothesis
    (6.170, _hypothesis_ftz_detector.py) leaves "spawn" if floats are drawn after a library (MindSpore,
    torch) has disabled subnormal numbers.
    """
    os.umask(UMASK)
    if multiprocessing.get_start_method(allow_none=True) not in (None, "fork"):
        multiprocessing.set_start_method("fork", force=True)
