"""Leases: locks that say which runs live. The operating system gives one back when its holder dies.

A run holds its lease for as long as its process lives, whatever ends it.
"""

import fcntl
from contextlib import AbstractContextManager
from pathlib import Path

from filelock import BaseFileLock, FileLock, Timeout

from pipeline.errors import StoreError


def locked(file: Path, store: Path, timeout_s: float = -1) -> AbstractContextManager[BaseFileLock]:
    """A lock, taken as soon as nobody else has it; `with` gives it back at its end.

    Raises:
        Timeout: somebody else has it, after `timeout_s`; below 0: never.
        StoreError: the store cannot be written.
    """
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        return FileLock(file, mode=0o664).acquire(timeout=timeout_s)
    except Timeout:
        raise
    except OSError as error:
        raise StoreError.of(error, store) from error


def exclusive(store: Path) -> AbstractContextManager[BaseFileLock]:
    """Hold the lock that separates starting a run from collecting garbage."""
    return locked(store / ".locks" / "runs.lock", store)


def take(store: Path, run: str) -> BaseFileLock:
    """Take the lease of a run; keep the returned lock for as long as the run lives."""
    return locked(store / ".leases" / f"{run}.lock", store, timeout_s=0).__enter__()


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
