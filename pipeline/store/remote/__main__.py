"""Pushes beside a run, in a process of its own: what its runs commit, as soon as it is whole.

Hears JSON lines on stdin: first where ({url, endpoint, timeout_s, store}), then {run, keys, lost} for what a
run is going to commit, {refused} for copies that were found damaged, and {end} once a run commits no more.
Tells JSON lines on stdout: {say, run} for people, {settled} when all of a run is done that can be done. Its
end loses nothing: `grpoflow push` goes on with it.
"""

from __future__ import annotations

import json
import os
import queue
import sys
import threading
import time
from pathlib import Path
from typing import Any

from pipeline.errors import RemoteError, StoreError
from pipeline.store.remote import records
from pipeline.store.remote.place import Place
from pipeline.store.remote.push import push
from pipeline.store.store import Key, Store
from stages.base.files import shown_bytes

LOOK_S = 1.0
AGAIN_S = 60.0
TELL_S = 15.0
_telling = threading.Lock()


class Pusher:
    """What is to be pushed, and what of it has been."""

    def __init__(self, place: Place, store: Store) -> None:
        self._place, self._store = place, store
        self._waiting: dict[Key, str] = {}
        """Artifact -> the run that builds it."""
        self._refused: set[str] = set()
        self._brief = place.briefly()
        self._told, self._down, self._again = False, False, 0.0

    def hear(self, line: dict[str, Any]) -> None:
        """Begin with a run, or end with it."""
        if "end" in line:
            self._again = 0.0  # once more, whenever it was lost; where that is in vain, no second time
            self.look()
            left = [str(key) for key, run in self._waiting.items() if run == line["end"]]
            whole = [name for name in left if (self._store.root / name).is_dir()]
            if whole:
                again = f"`grpoflow push {line['end']}` brings it later"
                say(f"push: not at {self._place.url}: {', '.join(whole)}; {again}", line["end"])
            self._waiting = {key: run for key, run in self._waiting.items() if run != line["end"]}
            self._record(line["end"])
            tell(settled=line["end"])
        elif "refused" in line:
            self._refused |= set(line["refused"])
        else:
            if line["lost"]:
                self._told, self._down, self._again = True, True, time.monotonic() + AGAIN_S
            self._waiting |= {Key(stage, fingerprint): line["run"] for stage, fingerprint in line["keys"]}
            self._record(line["run"])

    def look(self) -> None:
        """Push what has become whole; after the remote did not answer, not at once again."""
        if time.monotonic() < self._again:
            return
        whole = [key for key in self._waiting if self._store.problem(key) is None]
        for key in whole if whole and self._answers() else ():
            try:
                self._push(key)
            except RemoteError as error:
                self._lose(error)
                return
            except StoreError as error:
                say(f"{key.stage}: warning: {error}", self._waiting[key])
            del self._waiting[key]

    def _push(self, key: Key) -> None:
        files = self._store.manifest(key).files.values()
        total, moved, told = sum(entry["size"] for entry in files), 0, time.monotonic()

        def count(size: int) -> None:
            nonlocal moved, told
            moved += size
            if time.monotonic() - told > TELL_S:
                told = time.monotonic()
                say(f"{key.stage}: pushing, {shown_bytes(moved)} of {shown_bytes(total)}", self._waiting[key])

        if push(self._place, self._store, key, count, self._refused):
            say(f"{key.stage}: pushed, {shown_bytes(total)}", self._waiting[key])

    def _answers(self) -> bool:
        """Whether the remote does; where it lately did not, it is asked again after a while, and briefly."""
        if self._down and time.monotonic() >= self._again:
            try:
                self._brief.list(records.ROOM)
                self._down = False
            except RemoteError as error:
                self._lose(error)
        return not self._down

    def _record(self, run: str) -> None:
        try:
            if self._answers():
                records.publish(self._place, self._store, run)
        except StoreError as error:
            self._lose(error)

    def _lose(self, error: StoreError) -> None:
        self._down, self._again = True, time.monotonic() + AGAIN_S
        if not self._told:
            self._told = True
            say(f"warning: push: {error}; the run goes on, and it is tried again")


def say(text: str, run: str = "") -> None:
    """A line for people, of a run or of all."""
    tell(say=text, run=run)


def tell(**values: str) -> None:
    """A line for the run; nobody may be left to hear it."""
    try:
        with _telling:
            print(json.dumps(values), flush=True)
    except BrokenPipeError:
        os._exit(1)


def main() -> None:
    """Push until stdin ends; at once where runs are not settled then, for theirs has been killed."""
    first = json.loads(sys.stdin.readline())
    place = Place(first["url"], first["endpoint"], first["timeout_s"])
    place.tell(lambda text: say(f"push: {text}"))
    pusher = Pusher(place, Store(Path(first["store"])))
    heard: queue.Queue[dict[str, Any]] = queue.Queue()
    threading.Thread(target=_read, args=(heard,), daemon=True).start()
    os.nice(5)
    while True:
        try:
            pusher.hear(heard.get(timeout=LOOK_S))
        except queue.Empty:
            pusher.look()


def _read(heard: queue.Queue[dict[str, Any]]) -> None:
    for line in sys.stdin:
        heard.put(json.loads(line))
    os._exit(0)


if __name__ == "__main__":
    main()
