"""File locks: they show which runs and attempts are alive, and let one process at a time build an artifact.

The operating system releases a lock when its process ends, even if it is killed. Several machines may share
a store if its file system supports locks across machines (NFSv4, Lustre mounted with flock).
"""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

from pipeline.errors import StoreError

if TYPE_CHECKING:
    from filelock import AcquireReturnProxy, BaseFileLock

MODE = 0o664
PATIENCE_S = 1.0
"""Longest time to wait for a lock that other processes hold only briefly, while they check it."""
RUNS_LOCK = Path(".locks", "runs.lock")


class AlreadyLocked(Exception):
    """Another process holds the lock."""


def locked(
    file: Path, store: Path, wait: bool = True, patience_s: float = 0.0
) -> AcquireReturnProxy[BaseFileLock]:
    """Acquire a lock; the end of a `with` statement releases it. The file is created, and never removed.

    Raises:
        AlreadyLocked: another process holds the lock, for `patience_s` if `wait` is False.
        StoreError: the store cannot be written.
    """
    from filelock import FileLock, Timeout  # the import takes 60 ms, and most commands need no lock

    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        lock: BaseFileLock = FileLock(file, mode=MODE, thread_local=False)
        return lock.acquire(timeout=-1.0 if wait else patience_s)
    except Timeout:
        raise AlreadyLocked(file) from None
    except OSError as error:
        raise StoreError.from_os_error(error, store) from error


def is_locked(file: Path) -> bool:
    """Return True if a process holds a lock, or if that is unknown; works in a read-only store, too."""
    try:
        with file.open("rb") as stream:
            fcntl.flock(stream, fcntl.LOCK_SH | fcntl.LOCK_NB)
            return False
    except FileNotFoundError:
        return False
    except OSError as error:
        if error.errno != errno.ENOSYS:
            return True
    try:  # without flock, filelock uses the file's existence and content
        with locked(file, file.parent, wait=False):
            return False
    except (AlreadyLocked, StoreError):
        return True


def exclusive(store: Path) -> AcquireReturnProxy[BaseFileLock]:
    """Acquire the lock that keeps run starts and garbage collection from overlapping."""
    return locked(store / RUNS_LOCK, store)


def take(store: Path, run: str) -> BaseFileLock:
    """Acquire a lease; the caller holds the returned lock until its runs end."""
    return locked(_lease_file(store, run), store, wait=False, patience_s=PATIENCE_S).__enter__()


def is_leased(store: Path, lease: str) -> bool:
    """Return True if a live process, on any machine, holds the lease."""
    return is_locked(_lease_file(store, lease))


_leases: WeakValueDictionary[tuple[int, Path], BaseFileLock] = WeakValueDictionary()
"""Process id and store -> lease, released with the last run that holds it; a fork acquires its own."""


def share(store: Path, run: str) -> tuple[str, BaseFileLock]:
    """Return name and lock of this process's lease on a store; it is named after the run that acquired it."""
    key = (os.getpid(), store)
    lock = _leases.get(key) or take(store, run)
    _leases[key] = lock
    return Path(lock.lock_file).stem, lock


def _lease_file(store: Path, lease: str) -> Path:
    return store / ".leases" / f"{lease}.lock"
