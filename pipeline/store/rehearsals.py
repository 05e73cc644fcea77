"""Rehearsals in a store: their reports, and the scratch directories of failed ones."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

from pipeline.errors import StoreError
from pipeline.store.leases import AlreadyLocked, locked
from pipeline.store.store import DIGITS, Key, Store

REHEARSALS, REPORT, SCRATCH = ".rehearsals", "report.json", "scratch"


def directory(store: Store, trained: Key) -> Path:
    """Return the directory of the rehearsal of a run, which is named by its grpo artifact."""
    return store.root / REHEARSALS / trained.fingerprint[:DIGITS]


@contextlib.contextmanager
def exclusive(directory: Path) -> Iterator[None]:
    """Hold the lock of a rehearsal's directory, so that no other process rehearses in it or removes it.

    Raises:
        StoreError: another process holds the lock, or the directory cannot be written.
    """
    try:
        lock = locked(directory / "lock", directory, wait=False)
    except AlreadyLocked:
        message = f"{directory}: is being rehearsed by another process; wait until it has ended"
        raise StoreError(message) from None
    with lock:
        yield


def leftover_scratch(store: Store) -> Iterator[Path]:
    """Yield the scratch directories of failed or interrupted rehearsals that no process uses."""
    for scratch in sorted((store.root / REHEARSALS).glob(f"*/{SCRATCH}")):
        with contextlib.suppress(StoreError), exclusive(scratch.parent):
            yield scratch
