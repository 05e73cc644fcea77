"""Memory of this machine."""

import os
from pathlib import Path


def memory_bytes() -> int:
    """Return the memory of this machine, or of the container that this process runs in."""
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    try:
        limit = Path("/sys/fs/cgroup/memory.max").read_text(encoding="ascii").strip()
    except OSError:
        return machine
    return min(machine, int(limit)) if limit.isdigit() else machine
