"""What every test finds as the first one did."""

from __future__ import annotations

import multiprocessing


def pytest_runtest_teardown() -> None:
    """Give back how processes are started: MindSpore's transform_checkpoints forks, and needs to.

    Hypothesis (6.170, _hypothesis_ftz_detector.py) leaves "spawn" behind when floats are drawn after a
    library has switched subnormal numbers off, as MindSpore's and torch's kernels do.
    """
    if multiprocessing.get_start_method(allow_none=True) not in (None, "fork"):
        multiprocessing.set_start_method("fork", force=True)
