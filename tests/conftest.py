"""How `make test` deals the tests out to its processes."""

from __future__ import annotations

import pytest

EXPENSIVE = ("finished", "mindrlhf_prepared")
"""Session fixtures of minutes: who shares one stays in one process."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A file's tests stay together; so do those that share an expensive fixture, or the machine's network."""
    for item in items:
        names = getattr(item, "fixturenames", ())
        group = next((name for name in EXPENSIVE if name in names), item.nodeid.partition("::")[0])
        if item.get_closest_marker("nodes") or item.get_closest_marker("slurm"):
            group = "machines"  # their addresses and daemons are this machine's
        item.add_marker(pytest.mark.xdist_group(group))
