"""Records of runs on a remote: one object per run, which only grows."""

from __future__ import annotations

import json
import re
from concurrent.futures import ThreadPoolExecutor

from filelock import FileLock

from pipeline.errors import RemoteError, StoreError
from pipeline.store import history
from pipeline.store.history import Record
from pipeline.store.remote.place import Place
from pipeline.store.store import Store

ROOM, KIND = "runs", ".jsonl"


def publish(place: Place, store: Store, run: str) -> None:
    """Write what the store's history tells of a run, after what the remote has known of it.

    Raises:
        RemoteError: the remote does not answer.
        StoreError: the history cannot be read.
    """
    try:
        with FileLock(store.root / ".locks" / "records.lock", mode=0o664):  # the last to write has read last
            known = _read(place, run) if f"{run}{KIND}" in place.list(ROOM) else []
            lines = dict.fromkeys([*known, *history.events_of(store.root, run)])
            ordered = sorted(lines, key=lambda line: float(json.loads(line)["time_s"]))
            if ordered and ordered != known:
                place.put(f"{ROOM}/{run}{KIND}", "".join(f"{line}\n" for line in ordered).encode())
    except OSError as error:
        raise StoreError.of(error, store.root) from error


def runs(place: Place) -> dict[str, Record]:
    """Everybody's runs by id, oldest first; one without an end has died, or goes on.

    Raises:
        RemoteError: the remote does not answer.
    """
    names = [name.removesuffix(KIND) for name in place.list(ROOM) if re.fullmatch(r"[\w-]+\.jsonl", name)]
    with ThreadPoolExecutor(place.workers) as pool:
        lines = [line for told in pool.map(lambda run: _read(place, run), sorted(names)) for line in told]
    return dict(sorted(history.parse(lines).items(), key=lambda item: item[1].started))


def _read(place: Place, run: str) -> list[str]:
    """The lines that are events of this run; nobody else's are taken from its object."""
    try:
        lines = place.read(f"{ROOM}/{run}{KIND}").decode("utf-8", "replace").split("\n")
    except RemoteError:
        if f"{run}{KIND}" in place.list(ROOM):
            raise
        return []
    return history.told_of(run, lines)
