"""Leases: locks that say which runs live. The operating system gives one back when its holder dies.

A run holds its lease for as long as its process lives, whatever ends it.
"""

from __future__ import annotations

import errno
import fcntl
import os
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from pipeline.errors import StoreError

if TYPE_CHECKING:
    from filelock import BaseFileLock

MODE = 0o664
OTHERS = (errno.EAGAIN, errno.EACCES)
"""What flock says where somebody else has the lock."""


class Taken(Exception):
    """Somebody else has the lock."""


class Lock:
    """A locked file: until `release`, the end of `with`, or of this process."""

    descriptor: int | None = None

    def __init__(self, file: Path) -> None:
        self.descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, MODE)

    def release(self, *_: object) -> None:
        """Give it back, even if a process that was forked meanwhile has the file open, too."""
        if self.descriptor is not None:
            fcntl.flock(self.descriptor, fcntl.LOCK_UN)
        self.__del__()

    def __enter__(self) -> Lock:
        return self

    __exit__ = release

    def __del__(self) -> None:
        """Close the file: not more, or a forked process that ends would give back what it never took."""
        descriptor, self.descriptor = self.descriptor, None
        if descriptor is not None:
            os.close(descriptor)


def locked(file: Path, store: Path, wait: bool = True) -> AbstractContextManager[Lock | BaseFileLock]:
    """A lock, taken as soon as nobody else has it; `with` gives it back at its end.

    Raises:
        Taken: somebody else has it, and we do not `wait`.
        StoreError: the store cannot be written.
    """
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        return _acquire(file, wait)
    except OSError as error:
        raise StoreError.of(error, store) from error


def _acquire(file: Path, wait: bool) -> AbstractContextManager[Lock | BaseFileLock]:
    while True:
        is_new = not file.exists()
        lock = Lock(file)
        assert lock.descriptor is not None
        try:
            fcntl.flock(lock.descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except OSError as error:
            if error.errno == errno.ENOSYS:
                return _soft(file, wait, is_new)
            if error.errno in OTHERS and not wait:
                raise Taken(file) from None
            raise
        with suppress(PermissionError):  # it is another user's
            os.fchmod(lock.descriptor, MODE)
        if os.fstat(lock.descriptor).st_nlink:  # else it was removed: others would lock another file
            return lock


def _soft(file: Path, wait: bool, is_new: bool) -> AbstractContextManager[BaseFileLock]:
    """Where there is no flock (Lustre, unless it is mounted with it): taken is what there is a file of."""
    from filelock import SoftFileLock, Timeout  # here: it takes as long to import as all that a plan needs

    if is_new:
        file.unlink(missing_ok=True)
    try:
        return SoftFileLock(file, mode=MODE).acquire(timeout=-1 if wait else 0)
    except Timeout:
        raise Taken(file) from None


def exclusive(store: Path) -> AbstractContextManager[Lock | BaseFileLock]:
    """Hold the lock that separates starting a run from collecting garbage."""
    return locked(store / ".locks" / "runs.lock", store)


def take(store: Path, run: str) -> Lock | BaseFileLock:
    """Take the lease of a run; keep the returned lock for as long as the run lives."""
    return locked(store / ".leases" / f"{run}.lock", store, wait=False).__enter__()


def is_leased(store: Path, run: str) -> bool:
    """Whether some living process, of this or another host, holds the run's lease; if in doubt: yes."""
    file = store / ".leases" / f"{run}.lock"
    try:
        if not file.exists():
            return False
        with _acquire(file, wait=False):
            return False
    except Taken:
        return True
    except OSError:  # a store that may only be read
        return _is_locked(file)


def _is_locked(file: Path) -> bool:
    """Whether a file's lock is held, without writing."""
    try:
        with file.open("rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    return False
