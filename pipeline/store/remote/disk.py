"""Files that come in pieces: what is left of an earlier call, appending, and making them last."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import mmap
import os
from collections import deque
from collections.abc import Iterator, Mapping
from concurrent.futures import Executor, Future
from pathlib import Path
from typing import Any

from pipeline.store.durable import READ_ONLY

BLOCK_BYTES = 8 << 20
"""Written at once past the kernel's cache: a third of the processor time of a file that goes through it."""
PIECE_BYTES = 256 << 10
"""Written at once through the cache: the kernel takes small pages that were used before; for 8 MiB it takes
large fresh ones, at three times the cost."""
ALIGNED_BYTES = 4096
"""Where a write past the cache must begin, in the file as in memory."""


class Appender:
    """Appends to one file after another, in whole blocks past the kernel's cache where the file system can.

    A block is written in a thread of `writing` while the next one fills. What is written so is on the disk
    when it is synced, and neither the cache nor a commit has to wait for it.
    """

    def __init__(self, writing: Executor) -> None:
        """Two blocks of memory."""
        self._writing = writing
        self._blocks = deque(mmap.mmap(-1, BLOCK_BYTES) for _ in range(2))
        self._filled, self._descriptor = 0, -1
        self._under_way: Future[None] | None = None

    @contextlib.contextmanager
    def to(self, path: Path) -> Iterator[None]:
        """Append to a file, never through a link; what was added is written, however this ends."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
        self._descriptor = os.open(path, flags, 0o644)
        try:
            if os.fstat(self._descriptor).st_size % ALIGNED_BYTES == 0:
                _set_direct(self._descriptor, True)
            try:
                yield
            finally:
                self._wait()
                _set_direct(self._descriptor, False)
                left, self._filled = self._filled, 0
                _write(self._descriptor, memoryview(self._blocks[0])[:left])
        finally:
            os.close(self._descriptor)

    def add(self, content: memoryview) -> None:
        """Append."""
        while content:
            room = BLOCK_BYTES - self._filled
            piece, content = content[:room], content[room:]
            self._blocks[0][self._filled : self._filled + len(piece)] = piece
            self._filled += len(piece)
            if self._filled == BLOCK_BYTES:
                self._wait()
                self._under_way = self._writing.submit(_write, self._descriptor, memoryview(self._blocks[0]))
                self._blocks.rotate()
                self._filled = 0

    def _wait(self) -> None:
        """Until the block before is written; where it cannot be, nothing is written behind it."""
        before, self._under_way = self._under_way, None
        if before is not None:
            try:
                before.result()
            except BaseException:
                self._filled = 0
                raise


def begun(path: Path, entry: Mapping[str, Any]) -> tuple[int, Any]:
    """Bytes of a file that are there and their digest; (0, …) where it has to be begun anew.

    Args:
        path: the file, or where it will be.
        entry: what the manifest says of it.
    """
    nothing = (0, hashlib.sha256())
    try:
        size = path.lstat().st_size
    except FileNotFoundError:
        return nothing
    if size > entry["size"] or not path.is_file() or path.is_symlink():
        path.unlink()
        return nothing
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while piece := file.read(PIECE_BYTES):
            digest.update(piece)
    if size == entry["size"] and digest.hexdigest() != entry["sha256"]:  # a power cut may leave zeros
        path.unlink()
        return nothing
    return size, digest


def sync(path: Path) -> None:
    """Write a file to the disk, and protect it, while the next ones come: a commit waits for nothing then."""
    with path.open("rb") as file:
        os.fchmod(file.fileno(), READ_ONLY)
        os.fsync(file.fileno())


def _set_direct(descriptor: int, is_direct: bool) -> None:
    """Write past the cache or through it; not every file system can do the first."""
    flags = fcntl.fcntl(descriptor, fcntl.F_GETFL)
    wanted = flags | os.O_DIRECT if is_direct else flags & ~os.O_DIRECT
    with contextlib.suppress(OSError):
        fcntl.fcntl(descriptor, fcntl.F_SETFL, wanted)


def _write(descriptor: int, content: memoryview) -> None:
    """Append as the file was opened; through the cache where the file system refuses the other."""
    while content:
        is_direct = bool(fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_DIRECT)
        try:
            content = content[os.write(descriptor, content if is_direct else content[:PIECE_BYTES]) :]
        except OSError as error:
            if not is_direct or error.errno != errno.EINVAL:
                raise
            _set_direct(descriptor, False)
