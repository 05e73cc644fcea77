"""Records of runs on a remote: one object per run, which only its store writes and which only grows.

What others tell of a run, that it is pinned for example, is an object of its own: nobody overwrites
another's.
"""

from __future__ import annotations

import json
import re
import time
import uuid

from pipeline.errors import StoreError
from pipeline.store import history
from pipeline.store.history import Record
from pipeline.store.leases import locked
from pipeline.store.remote.place import Entry, Place
from pipeline.store.store import Store

ROOM, KIND = "runs", ".jsonl"
OBJECT = re.compile(r"[\w-]+(\+[0-9a-f]+)?\.jsonl")


def publish(place: Place, store: Store, run: str) -> None:
    """Write what the store's history tells of a run, after what the remote has known of it.

    Raises:
        RemoteError: the remote does not answer.
        StoreError: the history cannot be read.
    """
    try:
        with locked(store.root / ".locks" / "records.lock", store.root):  # the last to write has read last
            name = f"{run}{KIND}"
            known = _read(place, name) if name in place.list(ROOM) else []
            lines = dict.fromkeys([*known, *history.events_of(store.root, run)])
            ordered = sorted(lines, key=lambda line: float(json.loads(line)["time_s"]))
            if ordered and ordered != known:
                place.put(f"{ROOM}/{name}", "".join(f"{line}\n" for line in ordered).encode())
    except OSError as error:
        raise StoreError.of(error, store.root) from error


def add(place: Place, run: str, event: str, **values: str) -> None:
    """Tell an event of a run that another store has made, in an object of its own.

    Raises:
        RemoteError: the remote does not answer.
    """
    line = {"run": run, "event": event, "time_s": time.time(), **values}
    place.put(f"{ROOM}/{run}+{uuid.uuid4().hex}{KIND}", f"{json.dumps(line)}\n".encode())


def runs(place: Place) -> dict[str, Record]:
    """Everybody's runs by id, oldest first; one without an end has died, or goes on.

    Raises:
        RemoteError: the remote does not answer.
    """
    lines = [line for told in place.map(lambda name: _read(place, name), _objects(place)) for line in told]
    ordered = sorted(lines, key=lambda line: float(json.loads(line)["time_s"]))
    return dict(sorted(history.parse(ordered).items(), key=lambda item: item[1].started))


def last_told(place: Place) -> dict[str, float]:
    """When something was last told of each run, by the remote's clock.

    Raises:
        RemoteError: the remote does not answer.
    """
    told: dict[str, float] = {}
    for name, entry in _objects(place).items():
        run = _run_of(name)
        told[run] = max(told.get(run, 0.0), entry.modified)
    return told


def _objects(place: Place) -> dict[str, Entry]:
    return {name: entry for name, entry in place.list(ROOM).items() if OBJECT.fullmatch(name)}


def _run_of(name: str) -> str:
    return name.removesuffix(KIND).partition("+")[0]


def _read(place: Place, name: str) -> list[str]:
    """The lines that are events of the run that the object's name says; nobody else's are taken from it."""
    return history.told_of(_run_of(name), place.read(f"{ROOM}/{name}").decode("utf-8", "replace").split("\n"))
