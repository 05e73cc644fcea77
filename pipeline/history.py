"""Runs: one JSON line per event in STORE/runs.jsonl, and a lease for as long as the process lives.

The file is only ever appended to, so a crash loses nothing but the line that it cut short. A lease is
a lock that the operating system gives back when its holder dies, however it dies.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from pipeline.errors import ConfigError, Problem

FILE = "runs.jsonl"


@dataclass
class Record:
    """One run, as its events tell it."""

    id: str
    started: float
    """Unix time, seconds."""
    overrides: list[str]
    config: dict[str, Any]
    """The resolved configuration."""
    artifacts: dict[str, str]
    """Stage -> STAGE/FIRST-16-DIGITS."""
    ended: float | None = None
    state: str = "died"
    """running, finished, failed, or died (no end was recorded and nobody holds its lease)."""
    failed_stage: str | None = None
    message: str | None = None
    result: dict[str, Any] = field(default_factory=dict)
    name: str | None = None
    pinned: bool = False


def new_run_id() -> str:
    """YYYYMMDD-HHMMSS-xxxx (UTC): sorts by time, unique enough for several people in one second."""
    return f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-{uuid.uuid4().hex[:4]}"


def record(store: Path, run: str, event: str, **values: Any) -> float:
    """Append one event; a single write of a single line, so that several processes do not mix theirs.

    Returns:
        Its Unix time.
    """
    now = time.time()
    line = json.dumps({"run": run, "event": event, "time_s": now, **values})
    descriptor = os.open(store / FILE, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o664)
    try:
        size = os.fstat(descriptor).st_size
        cut_short = size > 0 and os.pread(descriptor, 1, size - 1) != b"\n"
        os.write(descriptor, (("\n" if cut_short else "") + line + "\n").encode())
    finally:
        os.close(descriptor)
    return now


def runs(store: Path) -> dict[str, Record]:
    """All runs by id, oldest first; lines that a crash cut short are passed over."""
    found: dict[str, Record] = {}
    try:
        lines: Sequence[str] = (store / FILE).read_text(encoding="utf-8", errors="replace").splitlines()
    except FileNotFoundError:
        lines = []
    for line in lines:
        with contextlib.suppress(ValueError, KeyError, TypeError):
            _apply(found, json.loads(line))
    for run in found.values():
        if run.state == "died" and is_leased(store, run.id):
            run.state = "running"
    return found


def _apply(found: dict[str, Record], event: dict[str, Any]) -> None:
    kind, run, when = event["event"], event["run"], float(event["time_s"])
    if kind == "started":
        found[run] = Record(run, when, event["overrides"], event["config"], event["artifacts"])
        return
    known = found[run]
    if kind == "finished":
        known.state, known.ended, known.result = "finished", when, event["result"]
    elif kind == "failed":
        known.state, known.ended = "failed", when
        known.failed_stage, known.message = event["stage"], event["message"]
    elif kind == "named":
        known.name = event["name"]
    elif kind in ("pinned", "unpinned"):
        known.pinned = kind == "pinned"


def find(store: Path, wanted: str) -> Record:
    """A run by id, unique beginning of an id, name, or `last`.

    Raises:
        ConfigError: none or several fit.
    """
    known = runs(store)
    if wanted == "last" and known:
        return list(known.values())[-1]
    fitting = [run for run in known.values() if wanted in (run.id, run.name)]
    fitting = fitting or [run for run in known.values() if run.id.startswith(wanted)]
    if len(fitting) != 1:
        rule = f"fits {len(fitting)} runs of {store}, must fit one"
        raise ConfigError([Problem("RUN", wanted, rule, "see `grpoflow runs`")])
    return fitting[0]


@contextlib.contextmanager
def exclusive(store: Path) -> Iterator[None]:
    """Hold the lock that separates starting a run from collecting garbage."""
    directory = store / ".locks"
    directory.mkdir(parents=True, exist_ok=True)
    with FileLock(directory / "runs.lock", mode=0o664):
        yield


def lease(store: Path, run: str) -> FileLock:
    """Take the lease of a run; keep the returned lock for as long as the run lives."""
    directory = store / ".leases"
    directory.mkdir(parents=True, exist_ok=True)
    lock = FileLock(directory / f"{run}.lock", mode=0o664)
    lock.acquire(timeout=0)
    return lock


def is_leased(store: Path, run: str) -> bool:
    """Whether some living process, of this or another host, holds the run's lease."""
    file = store / ".leases" / f"{run}.lock"
    if not file.exists():
        return False
    lock = FileLock(file, mode=0o664)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        return True
    lock.release()
    return False
