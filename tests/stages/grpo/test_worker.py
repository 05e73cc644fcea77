import os

import pytest

from stages.grpo import worker


@pytest.mark.parametrize(
    ("workers", "rank", "host", "quota", "threads", "cpus"),
    [
        ("1", "0", "127.0.0.1", "max", None, None), ("2", "1", "127.0.0.1", "max", 2, {2, 3, 6, 7}),
        ("2", "1", "127.0.0.1", "600000", 3, None), ("3", "1", "127.0.0.1", "max", 1, {1, 5}),
        ("6", "0", "127.0.0.1", "max", 1, None), ("2", "0", "203.0.113.7", "max", None, None),
    ],
)  # fmt: skip
def test_workers_of_a_machine_share_its_cores(
    monkeypatch, tmp_path, workers, rank, host, quota, threads, cpus
):
    """Eight CPUs, two of each core: 0 and 4, 1 and 5, …"""
    (tmp_path / "cpu.max").write_text(f"{quota} 100000\n")
    for cpu in range(8):
        (tmp_path / f"cpu{cpu}/topology").mkdir(parents=True)
        (tmp_path / f"cpu{cpu}/topology/thread_siblings_list").write_text(f"{cpu % 4},{cpu % 4 + 4}\n")
    bound = []
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))
    monkeypatch.setattr(os, "sched_setaffinity", lambda _, allowed: bound.append(allowed))
    monkeypatch.setattr(worker, "SYSTEM", tmp_path)
    monkeypatch.setattr(worker, "QUOTA", tmp_path / "cpu.max")
    names = {"MS_ROLE": "MS_WORKER", "MS_WORKER_NUM": workers, "RANK_ID": rank, "MS_SCHED_HOST": host}
    for name, value in names.items():
        monkeypatch.setenv(name, value)
    assert worker.take_cores() == threads
    assert bound == ([] if cpus is None else [cpus])
