"""Rehearsals in a store: the report of each, and what one that failed has left."""

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path

from pipeline.errors import StoreError
from pipeline.store.leases import Taken, locked
from pipeline.store.store import DIGITS, Store

ROOM, REPORT, SCRATCH = ".rehearsals", "report.json", "scratch"


def directory(store: Store, identity: str) -> Path:
    """Where a rehearsal's report lies."""
    return store.root / ROOM / identity[:DIGITS]


@contextlib.contextmanager
def alone(place: Path) -> Iterator[None]:
    """Let no other process rehearse, or clear away, in the directory of one rehearsal.

    Raises:
        StoreError: another one does, or it cannot be written.
    """
    try:
        lock = locked(place / "lock", place, wait=False)
    except Taken:
        raise StoreError(f"{place}: is being rehearsed by another process; wait until it has ended") from None
    with lock:
        yield


def left(store: Store) -> Iterator[Path]:
    """Scratch directories of rehearsals that failed or were ended, none of them in use."""
    for scratch in sorted((store.root / ROOM).glob(f"*/{SCRATCH}")):
        with contextlib.suppress(StoreError), alone(scratch.parent):
            yield scratch


def has_passed(place: Path) -> bool:
    """Whether the rehearsal whose report lies there has passed."""
    try:
        return bool(json.loads((place / REPORT).read_text(encoding="utf-8"))["passed"])
    except (OSError, ValueError, KeyError, TypeError):
        return False
