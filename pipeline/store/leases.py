"""Leases: locks that say which runs live. The operating system gives one back when its holder dies.

A run holds its lease for as long as its process lives, whatever ends it.
"""

import contextlib
import fcntl
from collections.abc import Iterator
from pathlib import Path

from filelock import FileLock, Timeout

from pipeline.errors import StoreError


@contextlib.contextmanager
def exclusive(store: Path) -> Iterator[None]:
    """Hold the lock that separates starting a run from collecting garbage.

    Raises:
        StoreError: the store cannot be written.
    """
    directory = store / ".locks"
    lock = FileLock(directory / "runs.lock", mode=0o664)
    try:
        directory.mkdir(parents=True, exist_ok=True)
        lock.acquire()
    except OSError as error:
        raise StoreError.of(error, store) from error
    try:
        yield
    finally:
        lock.release()


def take(store: Path, run: str) -> FileLock:
    """Take the lease of a run; keep the returned lock for as long as the run lives.

    Raises:
        StoreError: the store cannot be written.
    """
    directory = store / ".leases"
    lock = FileLock(directory / f"{run}.lock", mode=0o664)
    try:
        directory.mkdir(parents=True, exist_ok=True)
        lock.acquire(timeout=0)
    except OSError as error:
        raise StoreError.of(error, store) from error
    return lock


def is_leased(store: Path, run: str) -> bool:
    """Whether some living process, of this or another host, holds the run's lease; if in doubt: yes."""
    file = store / ".leases" / f"{run}.lock"
    try:
        if not file.exists():
            return False
        lock = FileLock(file, mode=0o664)
        lock.acquire(timeout=0)
    except Timeout:
        return True
    except OSError:  # a store that may only be read
        return _is_locked(file)
    lock.release()
    return False


def _is_locked(file: Path) -> bool:
    """Whether a file's lock is held, without writing."""
    try:
        with file.open("rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    return False
