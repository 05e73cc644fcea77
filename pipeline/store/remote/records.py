"""Records of runs on a remote: one file per run, written by its store, and one per event added by others."""

from __future__ import annotations

import json
import math
import re
import time
import uuid

from pipeline.store import history
from pipeline.store.history import Record
from pipeline.store.remote import RUNS
from pipeline.store.remote.remote import Remote
from pipeline.store.store import Store

FILE = re.compile(r"([\w-]+)(\+[0-9a-f]+)?\.jsonl")
RUNNING_S = 14 * 86_400.0
"""A run without an end counts as running for this time after its last event."""


def publish(remote: Remote, store: Store, run: str) -> None:
    """Add the local events of a run to its record; lines that the local history has lost stay there."""
    name = f"{run}.jsonl"
    published = _read(remote, name) if name in remote.list(RUNS) else []
    local = history.filter_events(run, history.read_lines(store.root))
    lines = list(dict.fromkeys([*published, *local]))
    if lines != published:
        remote.write(f"{RUNS}/{name}", "".join(f"{line}\n" for line in lines).encode())


def record(remote: Remote, run: str, event: str, **values: str) -> None:
    """Add an event of a run that another store made."""
    line = {"run": run, "event": event, "time_s": time.time(), **values}
    remote.write(f"{RUNS}/{run}+{uuid.uuid4().hex}.jsonl", f"{json.dumps(line)}\n".encode())


def runs(remote: Remote, now: float = math.inf) -> dict[str, Record]:
    """Return all recorded runs by id, oldest first by the remote's clock.

    A run without an end counts as died, or as running if its last event is recent at the remote's time `now`.
    """
    files = {name: entry for name, entry in remote.list(RUNS).items() if FILE.fullmatch(name)}
    by_age = sorted(files, key=lambda name: ("+" in name, files[name].modified))
    lines = [line for part in remote.map(lambda name: _read(remote, name), by_age) for line in part]
    known = history.parse(lines)
    for name, entry in files.items():
        run = known.get(_run(name))
        if run is not None and run.state == "died" and entry.modified > now - RUNNING_S:
            run.state = "running"
    return known


def _run(name: str) -> str:
    return name.removesuffix(".jsonl").partition("+")[0]


def _read(remote: Remote, name: str) -> list[str]:
    """Return the lines of a file that are events of the run in its name."""
    return history.filter_events(
        _run(name), remote.read(f"{RUNS}/{name}").decode("utf-8", "replace").split("\n")
    )
