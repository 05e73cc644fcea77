"""What every test finds as the first one did, and how `make test` deals the tests out to its processes."""

from __future__ import annotations

import multiprocessing
import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

import stages.strategy.messages  # noqa: F401  before ray: which protobuf there is, its first import decides

PACED = Path(__file__).parent / "data" / "paced"
UMASK = os.umask(0o022)
os.umask(UMASK)
EXPENSIVE = ("finished", "mindrlhf_prepared")
"""Session fixtures of minutes: who shares one stays in one process."""
MACHINES = "machines"
"""Group of the tests whose addresses and daemons are this machine's."""


def pytest_configure(config: pytest.Config) -> None:
    """Let msrun rest while it waits, in whatever process a test starts, and let no process take both cores.

    HYPOTHESIS_PROFILE=thorough: more examples, and new ones each time.
    """
    config.option.loadscopereorder = False  # pytest-xdist's order is by number of tests
    paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    if str(PACED) not in paths:
        os.environ["PYTHONPATH"] = os.pathsep.join([str(PACED), *filter(None, paths)])
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    common = {"deadline": None, "suppress_health_check": list(HealthCheck), "print_blob": True}
    settings.register_profile("fast", max_examples=25, derandomize=True, **common)
    settings.register_profile("thorough", max_examples=1000, **common)
    settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "fast"))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A file's tests stay together; so do those that share an expensive fixture, or the machine's network.

    What takes longest comes first, so that no process waits for another at the end.
    """
    groups = {item: _group(item) for item in items}
    slow = {groups[item] for item in items if item.get_closest_marker("slow")}
    for item, group in groups.items():
        item.add_marker(pytest.mark.xdist_group(group))
    first = (*EXPENSIVE, MACHINES)
    items.sort(key=lambda item: (groups[item] not in first, groups[item] not in slow))


def _group(item: pytest.Item) -> str:
    names = getattr(item, "fixturenames", ())
    if item.get_closest_marker("nodes") or item.get_closest_marker("slurm"):
        return MACHINES
    if named := item.get_closest_marker("xdist_group"):
        return str(named.args[0])
    return next((name for name in EXPENSIVE if name in names), item.nodeid.partition("::")[0])


def pytest_runtest_teardown() -> None:
    """Give back what libraries take from a process that many tests share.

    How processes are started: MindSpore's transform_checkpoints forks, and needs to. Hypothesis (6.170,
    _hypothesis_ftz_detector.py) leaves "spawn" behind when floats are drawn after a library has switched
    subnormal numbers off, as MindSpore's and torch's kernels do.

    The umask: transform_checkpoints leaves 077 behind (MindSpore 2.7.0).
    """
    os.umask(UMASK)
    if multiprocessing.get_start_method(allow_none=True) not in (None, "fork"):
        multiprocessing.set_start_method("fork", force=True)
