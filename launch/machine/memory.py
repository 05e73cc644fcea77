"""Memory of this machine."""

import contextlib
import os
from pathlib import Path

CGROUP = Path("/sys/fs/cgroup")
LIMITS = ("memory.max", "memory/memory.limit_in_bytes")
"""Files with a container's limit: of version 2 and of version 1, the default of older systems."""


def memory_bytes(cgroup: Path = CGROUP) -> int:
    """Return the memory of this machine, or of the container that this process runs in."""
    sizes = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    for name in LIMITS:
        with contextlib.suppress(OSError, ValueError):  # no such file, or "max"
            sizes.append(int((cgroup / name).read_text(encoding="ascii")))
    return min(sizes)
