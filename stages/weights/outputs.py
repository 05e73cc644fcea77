"""Weight files written in place: header first, then regions in any order, from any thread."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from stages.base.errors import InputError
from stages.base.files import shown_bytes
from stages.weights.ckpt import build_ckpt
from stages.weights.header import build_header


@dataclass(frozen=True)
class Target:
    """A region of an output file that takes a box of a full tensor."""

    file: OutputFile
    offset: int
    """First byte of the box's data in the file."""
    box: tuple[slice, ...]
    """Part of the full tensor; the first slice may have a step (fused rows)."""


class OutputFile:
    """One safetensors or .ckpt file being written. `pwrite` is safe from several threads."""

    def __init__(
        self, path: Path, tensors: Sequence[tuple[str, str, Sequence[int]]],
        metadata: Mapping[str, str] | None = None,
    ) -> None:  # fmt: skip
        """Create the file at its full size with everything but the tensors' data.

        Args:
            path: the file; its directory is made. The suffix .ckpt selects MindSpore's older format.
            tensors: (name, dtype code, shape) in the file's order.
            metadata: texts for safetensors' __metadata__.
        """
        plan = build_ckpt(tensors) if path.suffix == ".ckpt" else build_header(tensors, metadata)
        self.path, self.size = path, plan.size
        self._regions = {name: parts for (name, _, _), parts in zip(tensors, plan.regions, strict=True)}
        path.parent.mkdir(parents=True, exist_ok=True)
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o644)
        try:
            os.ftruncate(self._descriptor, self.size)
            for offset, frame in plan.frames:
                self.pwrite(memoryview(frame), offset)
        except BaseException:
            os.close(self._descriptor)
            raise

    def offset(self, name: str) -> int:
        """First byte of a tensor's data (safetensors; a large tensor in a .ckpt has several parts)."""
        return self._regions[name][0][2]

    def targets(self, name: str, box: tuple[slice, ...]) -> list[Target]:
        """Return the destinations of the box of a full tensor that this file stores as `name`."""
        first = box[0].start
        return [
            Target(self, offset, (slice(first + begin, first + end), *box[1:]))
            for begin, end, offset in self._regions[name]
        ]

    def pwrite(self, data: memoryview, offset: int) -> None:
        """Write all of `data` (contiguous bytes) at `offset` of the file."""
        data = data.cast("B")
        try:
            while data:
                written = os.pwrite(self._descriptor, data, offset)
                data, offset = data[written:], offset + written
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise disk_full(self.path, self.size) from None
            raise

    def close(self) -> None:
        """Close the file without syncing it."""
        os.close(self._descriptor)


def check_space(files: Sequence[OutputFile]) -> None:
    """Refuse, before hours of copying, files of one directory tree that the disk cannot hold.

    Raises:
        InputError: naming the bytes needed and free.
    """
    needed = sum(file.size for file in files)
    if files and needed > shutil.disk_usage(files[0].path.parent).free:
        raise disk_full(files[0].path.parent, needed)


def disk_full(path: Path, needed: int) -> InputError:
    """Return the error for a disk without enough space."""
    free = shutil.disk_usage(path if path.is_dir() else path.parent).free
    rule = f"disk full: {shown_bytes(needed)} are needed, {shown_bytes(free)} are free"
    return InputError(path, None, rule, "free space or choose another store")


@contextmanager
def complete_directory(target: Path) -> Iterator[Path]:
    """Yield a hidden sibling of `target`, which is renamed to it on success and removed on an exception.

    As with cp, nothing is synced to the disk: this withstands a kill, not a power failure. The remains of a
    killed attempt are removed by the next one with the same target. A target that is not an empty directory,
    or that another process is writing, is refused.
    """
    _require_free(target)
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_name(f".{target.name}.part")
    lock = _lock_directory(temporary, target)
    try:
        _require_free(target)  # the lock's previous owner may have finished
        for left in temporary.iterdir():
            shutil.rmtree(left) if left.is_dir() and not left.is_symlink() else left.unlink()
        yield temporary
        _require_free(target)
        temporary.rename(target)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    finally:
        os.close(lock)


def _require_free(target: Path) -> None:
    if target.exists() and not (target.is_dir() and not any(target.iterdir())):
        remedy = "choose another directory or remove it"
        raise InputError(target, None, "exists already and is not empty", remedy)


def _lock_directory(directory: Path, target: Path) -> int:
    """Make `directory` and lock it; return the descriptor that holds the lock.

    On a file system without locks, a directory with files counts as locked.
    """
    directory.mkdir(exist_ok=True)
    lock = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        available = directory.exists() and os.path.samestat(directory.stat(), os.fstat(lock))
    except OSError as error:
        available = not isinstance(error, BlockingIOError) and not any(directory.iterdir())
    if not available:
        os.close(lock)
        remedy = f"wait for it, or remove {directory} if no process writes it"
        raise InputError(target, None, "is being written by another process", remedy)
    return lock
