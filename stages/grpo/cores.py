"""The cores of a worker: its share of those that this machine allows, dealt out by core and memory node.

Workers that the kernel moves about run on one core while the other is idle: a collective waits for the slower
one at every step, and a thread that waits spins. Importing this module imports no MindSpore.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path

SYSTEM = Path("/sys/devices/system")
QUOTA = Path("/sys/fs/cgroup/cpu.max")


def share(rank: int, workers: int, allowed: Collection[int], system: Path = SYSTEM) -> tuple[int, ...]:
    """Return the CPUs of one of several workers; () if there are fewer cores than workers.

    Neighbours stay together: hardware threads of a core, then cores of a memory node. What does not divide
    stays idle, for the workers wait for the slowest.

    Args:
        rank: of the worker on this machine, from 0.
        workers: on this machine.
        allowed: CPUs that this process may use: taskset's, Slurm's or a container's.
        system: where Linux tells of CPUs and memory nodes.
    """
    cores = _cores(allowed, system)
    each = len(cores) // workers
    return tuple(sorted(cpu for core in cores[rank * each : (rank + 1) * each] for cpu in core))


def count(cpus: Collection[int], system: Path = SYSTEM) -> int:
    """Cores that CPUs belong to: two hardware threads of one compute no more than one of them does."""
    return len(_cores(cpus, system))


def quota(file: Path = QUOTA) -> float | None:
    """CPUs that a container's time is limited to, on whichever it runs; None: no limit.

    Source: Linux, Documentation/admin-guide/cgroup-v2.rst, cpu.max.
    """
    try:
        most, period = file.read_text(encoding="ascii").split()
        return None if most == "max" else int(most) / int(period)
    except (OSError, ValueError):
        return None


def _cores(cpus: Collection[int], system: Path) -> Sequence[list[int]]:
    """CPUs by the core that they are threads of, cores by memory node; each a core where nothing is told."""
    nodes = {cpu: node for node, listed in _nodes(system) for cpu in listed}
    found_cpus: dict[tuple[int, int, int], list[int]] = {}
    for cpu in sorted(cpus):
        topology = system / f"cpu/cpu{cpu}/topology"
        try:
            package, core = (
                int((topology / name).read_text()) for name in ("physical_package_id", "core_id")
            )
        except (OSError, ValueError):
            package, core = -1, cpu
        found_cpus.setdefault((nodes.get(cpu, 0), package, core), []).append(cpu)
    return [found_cpus[key] for key in sorted(found_cpus)]


def _nodes(system: Path) -> list[tuple[int, list[int]]]:
    """Memory nodes and their CPUs."""
    return [
        (int(file.parent.name[4:]), _listed(file.read_text(encoding="ascii")))
        for file in (system / "node").glob("node[0-9]*/cpulist")
    ]


def _listed(text: str) -> list[int]:
    """`0-3,8` as numbers."""
    ranges = [part.partition("-") for part in text.strip().split(",") if part]
    return [cpu for first, _, last in ranges for cpu in range(int(first), int(last or first) + 1)]
