import json
import os
from functools import partial

import numpy as np
import psutil
import pytest

from stages.__main__ import main
from stages.grpo import cores, worker


@pytest.mark.parametrize(
    ("role", "workers", "rank", "host", "quota", "wanted", "cpus"),
    [
        (None, "1", None, "127.0.0.1", "max", None, None),
        ("MS_WORKER", "1", "0", "127.0.0.1", "max", None, None),
        ("MS_WORKER", "2", "1", "127.0.0.1", "max", 2, (2, 3, 6, 7)),
        ("MS_WORKER", "2", "1", "127.0.0.1", "600000", 3, None),
        ("MS_WORKER", "2", None, "127.0.0.1", "max", 4, None),
        ("MS_WORKER", "6", "0", "127.0.0.1", "max", 1, None),
        ("MS_SCHED", "2", "0", "127.0.0.1", "max", None, None),
        ("MS_WORKER", "2", "0", "203.0.113.7", "max", None, None),
    ],
)
def test_workers_of_one_machine_share_its_cores(
    monkeypatch, tmp_path, role, workers, rank, host, quota, wanted, cpus
):
    """Eight CPUs, two of a core: 0 and 4, 1 and 5, …; two cores of a memory node."""
    (tmp_path / "cpu.max").write_text(f"{quota} 100000\n")
    machine(tmp_path, threads=2, cores=4, nodes=2)
    kept = []
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))
    monkeypatch.setattr(os, "sched_setaffinity", lambda _, given: kept.append(tuple(given)))
    for name in ("share", "count"):
        monkeypatch.setattr(cores, name, partial(getattr(cores, name), system=tmp_path))
    monkeypatch.setattr(cores, "quota", partial(cores.quota, tmp_path / "cpu.max"))
    named = {"MS_ROLE": role, "MS_WORKER_NUM": workers, "DEVICE_ID": rank, "MS_SCHED_HOST": host}
    for name, value in named.items():
        if value is None:
            monkeypatch.delenv(name, raising=False)
        else:
            monkeypatch.setenv(name, value)
    assert worker.take_cores() == wanted
    assert kept == ([] if cpus is None else [cpus])


def machine(root, threads, cores, nodes):
    """A machine as Linux tells of it; thread t of core c is CPU t * cores + c."""
    per = cores // nodes
    for cpu in range(threads * cores):
        topology = root / f"cpu/cpu{cpu}/topology"
        topology.mkdir(parents=True)
        (topology / "physical_package_id").write_text("0\n")
        (topology / "core_id").write_text(f"{cpu % cores}\n")
    for node in range(nodes):
        (root / f"node/node{node}").mkdir(parents=True)
        ranges = (f"{t * cores + node * per}-{t * cores + (node + 1) * per - 1}" for t in range(threads))
        (root / f"node/node{node}/cpulist").write_text(",".join(ranges) + "\n")


def test_cores_are_dealt_out_with_their_neighbours(tmp_path):
    machine(tmp_path, threads=2, cores=6, nodes=2)
    assert cores.share(0, 2, range(12), tmp_path) == (0, 1, 2, 6, 7, 8)
    assert [cores.share(rank, 4, range(12), tmp_path) for rank in range(4)] == [
        (0, 6),
        (1, 7),
        (2, 8),
        (3, 9),
    ]
    assert [cores.share(rank, 2, {0, 5, 6, 11}, tmp_path) for rank in (0, 1)] == [(0, 6), (5, 11)]
    assert cores.share(0, 2, {0, 6}, tmp_path) == ()  # two threads of one core
    assert cores.share(1, 2, {8, 9}, tmp_path / "nothing") == (9,)


@pytest.mark.parametrize("stage", ["sft", "grpo", "evaluate"])
def test_a_device_that_mindspore_does_not_serve_is_refused_before_anything_is_read(stage, tmp_path, capsys):
    spec = {
        "stage": stage, "config": {"engine": {"name": "local", "device_target": "GPU"}}, "inputs": {},
        "output": str(tmp_path), "work": str(tmp_path), "progress_file": str(tmp_path / "progress"),
    }  # fmt: skip
    (tmp_path / "spec.json").write_text(json.dumps(spec), encoding="utf-8")
    assert main([stage, str(tmp_path / "spec.json")]) == 1  # the wheel holds no CUDA, here or anywhere
    told = capsys.readouterr().err
    assert "engine.device_target=GPU: MindSpore" in told and "set engine.device_target=CPU" in told


def test_what_was_freed_goes_back_to_the_system():
    arrays = [np.ones(2**13) for _ in range(3200)]  # 200 MiB in pieces that glibc keeps on its heap
    above = np.ones(2**13)  # its heap doesn't shrink from the end
    held = psutil.Process().memory_info().rss
    arrays.clear()
    worker.give_back_memory()
    assert held - psutil.Process().memory_info().rss > 2**27
    assert above.all()
