import os

import pytest

from stages.grpo import worker


@pytest.mark.parametrize(
    ("role", "workers", "host", "cores", "wanted"),
    [
        (None, "1", "127.0.0.1", 8, None),
        ("MS_WORKER", "1", "127.0.0.1", 8, None),
        ("MS_WORKER", "2", "127.0.0.1", 8, 4),
        ("MS_WORKER", "4", "127.0.0.1", 2, 1),
        ("MS_SCHED", "2", "127.0.0.1", 8, None),
        ("MS_WORKER", "2", "203.0.113.7", 8, None),
    ],
)
def test_workers_of_one_machine_share_its_cores(monkeypatch, role, workers, host, cores, wanted):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(cores)))
    for name, value in (("MS_ROLE", role), ("MS_WORKER_NUM", workers), ("MS_SCHED_HOST", host)):
        if value is None:
            monkeypatch.delenv(name, raising=False)
        else:
            monkeypatch.setenv(name, value)
    assert worker.share_of_cores() == wanted
