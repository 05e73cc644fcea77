"""Files that others give us: opened only where they are files, and their sizes told to people."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO

KINDS = {
    stat.S_IFIFO: "a pipe", stat.S_IFCHR: "a device", stat.S_IFBLK: "a device", stat.S_IFSOCK: "a socket",
    stat.S_IFDIR: "a directory",
}  # fmt: skip


def open_regular(path: Path) -> BinaryIO:
    """Open a file for reading bytes; never waits, as opening a pipe without a writer does.

    Raises:
        OSError: it is missing, may not be read, or is a pipe, a device, a socket or a directory.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        kind = stat.S_IFMT(os.fstat(descriptor).st_mode)
        if kind != stat.S_IFREG:
            raise OSError(errno.EINVAL, f"is {KINDS.get(kind, 'something else')}, not a file", str(path))
        return os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def read_text(path: Path) -> str:
    """All of a UTF-8 file.

    Raises:
        OSError: as open_regular.
        UnicodeDecodeError: it is not UTF-8.
    """
    with open_regular(path) as file:
        return file.read().decode("utf-8")


def shown_bytes(count: int) -> str:
    """Bytes for people: 512 B, 3.2 MiB, never 0.0 GiB."""
    value, units = float(count), ["B", "KiB", "MiB", "GiB", "TiB"]
    while abs(value) >= 1024 and len(units) > 1:
        value /= 1024
        units.pop(0)
    return f"{count} B" if units[0] == "B" else f"{value:.1f} {units[0]}"
