"""This process as one of the workers of a run; importing this module imports no MindSpore."""

from __future__ import annotations

import ctypes
import functools
import os
import re
import sys
from collections.abc import Collection
from pathlib import Path

import psutil

from stages.base.context import rank
from stages.base.errors import ConfigError, Problem

LOOPBACK = ("127.0.0.1", "localhost")
SYSTEM = Path("/sys/devices/system/cpu")
QUOTA = Path("/sys/fs/cgroup/cpu.max")


def role() -> str | None:
    """Return MS_WORKER, MS_SCHED, or None if msrun has not started this process."""
    return os.environ.get("MS_ROLE")


def start(device_target: str = "CPU") -> tuple[int, int]:
    """Set up MindSpore and, on accelerators, join the other workers; return (rank, number of workers).

    msrun starts its scheduler from the same command line: that process serves the workers until all have
    ended and then exits here; on CPUs, where workers connect by themselves (links.py), at once.

    Raises:
        ConfigError: this installation of MindSpore does not support `device_target`.
    """
    if role() == "MS_SCHED" and device_target == "CPU":
        sys.exit(0)
    # One line per reconnection attempt is noise; errors still show.
    os.environ.setdefault("GLOG_v", "3")
    threads = take_cores()
    if threads is not None:
        os.environ.setdefault("OMP_NUM_THREADS", str(threads))
    import mindspore as ms
    from mindspore.communication import get_group_size, get_rank, init

    ms.set_context(mode=ms.GRAPH_MODE)
    if device_target == "CPU":
        reserve_memory()
    if threads is not None:
        ms.device_context.cpu.op_tuning.threads_num(threads)
    if role() == "MS_SCHED":  # takes no device
        init()
        sys.exit(0)
    use_device(device_target)
    if role() is None:
        return 0, 1
    if device_target == "CPU":
        return rank(), int(os.environ["MS_WORKER_NUM"])
    init()
    return int(get_rank()), int(get_group_size())


def take_cores() -> int | None:
    """Stay on this worker's cores where several share this machine; before MindSpore starts its threads.

    Otherwise each worker would use all cores, and its waiting threads would spin and block the other workers.
    If a container's time is limited instead of its cores, the kernel goes on choosing them.

    Returns:
        threads for its kernels; None: MindSpore decides.
    """
    workers = int(os.environ.get("MS_WORKER_NUM", "1"))
    if role() != "MS_WORKER" or workers == 1 or os.environ["MS_SCHED_HOST"] not in LOOPBACK:
        return None
    allowed = os.sched_getaffinity(0)
    limit = cpu_quota()
    if limit is not None and limit < len(allowed):
        return max(1, int(limit) // workers)
    cores = cpus_by_core(allowed)
    each = len(cores) // workers
    if each:
        os.sched_setaffinity(0, {cpu for core in cores[rank() * each :][:each] for cpu in core})
    return max(1, each)


def cpus_by_core(cpus: Collection[int]) -> list[list[int]]:
    """Return CPUs by the core that they are hardware threads of; neighbours in the list are neighbours."""
    cores: dict[int, list[int]] = {}
    for cpu in sorted(cpus):
        siblings = SYSTEM / f"cpu{cpu}/topology/thread_siblings_list"
        first = re.match(r"\d+", siblings.read_text(encoding="ascii")) if siblings.is_file() else None
        cores.setdefault(int(first[0]) if first else cpu, []).append(cpu)
    return [cores[core] for core in sorted(cores)]


def cpu_quota() -> float | None:
    """Return the number of CPUs that a container's time is limited to; None: no limit.

    Source: Linux, Documentation/admin-guide/cgroup-v2.rst, cpu.max.
    """
    try:
        most, period = QUOTA.read_text(encoding="ascii").split()
        return None if most == "max" else int(most) / int(period)
    except (OSError, ValueError):
        return None


@functools.cache  # a process may set it once
def reserve_memory() -> None:
    """Let MindSpore put intermediate results of CPU graphs into one block, before a graph runs.

    Its default blocks of 2 GiB waste memory on large tensors: with weights of 0.59 GiB, five updates peaked
    at 5.0 GiB, with one large block at 3.4 GiB. The unused part of a block takes no memory, and if the
    system refuses one of this size MindSpore allocates smaller ones.
    """
    import mindspore as ms

    ms.runtime.set_memory(init_size=f"{max(2, psutil.virtual_memory().available >> 30)}GB")


def give_back_memory() -> None:
    """Return free memory to the system: glibc keeps what loading weights and compiling graphs used."""
    ctypes.CDLL(None).malloc_trim(0)


def use_device(target: str) -> None:
    """Compute on `target` from now on.

    Raises:
        ConfigError: this installation of MindSpore does not support it.
    """
    import mindspore as ms

    if ms.get_context("device_target") == target:  # setting it again is an error once a kernel has run
        return
    try:
        ms.set_device(target)
    except (RuntimeError, ValueError) as error:
        rule = f"MindSpore {ms.__version__} refuses: {str(error).partition(' Please check')[0].strip()}"
        remedy = "set engine.device_target=CPU, or install what the device needs (for Ascend: CANN)"
        raise ConfigError([Problem("engine.device_target", target, rule, remedy)]) from error
