"""Pull: from a remote into an attempt at an artifact, compared with the manifest while it streams."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from queue import Empty, SimpleQueue

from pipeline.errors import NoResult, NotThere, RemoteError, StoreError
from pipeline.store.attempt import Attempt, attempt
from pipeline.store.remote import disk
from pipeline.store.remote.content import Content
from pipeline.store.remote.copies import Copy, find, lacking, offsets, spans
from pipeline.store.remote.place import Place
from pipeline.store.store import MANIFEST, Key, Store
from stages.base.files import shown_bytes

LANES = min(4, os.cpu_count() or 1)
"""Files that are compared and written at once: SHA-256 takes one core, whatever else does."""
LANE_BYTES = 64 << 20
TOLD_BYTES = 1 << 20
"""Told at once, for another thread is woken to tell it."""
SYNCS = 16
"""Files that are written to the disk at once: file systems put what waits into one transaction."""
AWAKE_S = 0.5
"""Longest wait in which a signal may go unheard, and without a sign of life."""
Told = Callable[[int], None]
Event = int | Future[list[str]]
"""So many bytes have come; or a lane has ended."""


def pull(
    place: Place,
    store: Store,
    key: Key,
    told: Told = lambda count: None,
    on_wait: Callable[[], None] = lambda: None,
) -> bool:
    """Bring an artifact into the store, by the store's own protocol; go on with what was begun.

    Returns:
        Whether it came from there now: False where it is whole already, or the remote has no copy.

    Raises:
        RemoteError: the remote does not answer, or what it holds is refused.
        StoreError: the store cannot be written.
    """
    with store.lock(key, on_wait):
        if store.problem(key) is None:
            return False
        copies = find(place, key)
        if not copies:
            return False
        with attempt(store, key) as seat:
            copy = _first_whole(place, copies, seat, told)
            try:
                store.commit(seat.staging, copy.manifest)
            except NoResult as error:
                raise RemoteError.of_copy(
                    copy.path, f"{place.url}/{copy.path}: is refused: {error}"
                ) from error
            seat.done()
    return True


def _first_whole(place: Place, copies: Iterable[Copy], seat: Attempt, told: Told) -> Copy:
    """The first copy that is what its manifest says, moved into the attempt's staging directory."""
    failed: RemoteError | None = None
    for copy in copies:
        begun = seat.work / f"pulled-{copy.path.rpartition('/')[2]}"
        for other in seat.work.glob("pulled-*"):
            if other != begun:
                shutil.rmtree(other)
        try:
            lack = lacking(place, copy)
            if lack is not None:
                raise RemoteError.of_copy(copy.path, f"{place.url}: is refused: {lack}")
            _check_room(copy, seat)
            fill(place, copy, begun, told=told, beat=seat.beat)
        except NotThere as error:  # gc has removed it since it was found
            failed = RemoteError.of_copy(copy.path, str(error))
            continue
        except RemoteError as error:
            if error.refused is None:
                raise
            failed = error
            continue
        seat.staging.rmdir()
        begun.rename(seat.staging)
        return copy
    raise failed or RemoteError(f"{place.url}: has no copy")


def _check_room(copy: Copy, seat: Attempt) -> None:
    free = shutil.disk_usage(seat.work).free
    begun = sum(file.stat().st_size for file in seat.work.glob("pulled-*/**/*") if file.is_file())
    if copy.bytes - begun > free:
        needed = f"{shown_bytes(free)} free, {copy.path} has {shown_bytes(copy.bytes)}"
        raise StoreError(f"{seat.work}: {needed}; free space, or choose another store with store=DIR")


def view(place: Place, copy: Copy, directory: Path, names: Iterable[str]) -> None:
    """Some files of a copy, as far as it has them, and its manifest, for a stage that reads no others.

    Raises:
        RemoteError, StoreError: as `pull`.
    """
    fill(place, copy, directory, [name for name in names if name in copy.manifest.files])
    (directory / MANIFEST).write_text(json.dumps(asdict(copy.manifest)), encoding="utf-8")


def fill(
    place: Place,
    copy: Copy,
    directory: Path,
    names: Iterable[str] | None = None,
    told: Told = lambda count: None,
    beat: Callable[[], None] = lambda: None,
) -> None:
    """Write files of a copy into a directory, after what an earlier, interrupted call has left there.

    Args:
        place: the remote.
        copy: what to bring.
        directory: made when it is not there; holds nothing but files of this copy.
        names: which files; None: all.
        told: hears of every so many bytes that are there now.
        beat: called while it goes on.

    Raises:
        RemoteError: the remote does not answer, or twice sent what is not in the manifest.
        StoreError: the directory cannot be written.
    """
    wanted = sorted(copy.manifest.files if names is None else names)
    try:
        for _ in (False, True):
            wanted = _stream(place, copy, directory, wanted, told, beat)
            if not wanted:
                return
            for name in wanted:
                (directory / name).unlink()
    except OSError as error:
        raise StoreError.of(error, directory) from error
    reason = f"{place.url}/{copy.path}: {wanted[0]} is not what its manifest says; it is refused"
    raise RemoteError.of_copy(copy.path, reason)


def damage(place: Place, copy: Copy) -> str | None:
    """The first file of a copy that is not what its manifest says; nothing of it is written here.

    Raises:
        RemoteError: the remote does not answer.
    """
    files = copy.manifest.files
    with place.threads() as pool:
        content = Content(place, copy, spans([(0, copy.bytes)]), pool, place.workers, Future())
        for name in sorted(files):
            digest, left = hashlib.sha256(), files[name]["size"]
            while left:
                piece = content.take(left)
                digest.update(piece)
                left -= len(piece)
            if digest.hexdigest() != files[name]["sha256"]:
                content.drop()
                return f"{name} is not what the manifest says"
    return None


def _stream(
    place: Place, copy: Copy, directory: Path, names: list[str], told: Told, beat: Callable[[], None]
) -> list[str]:
    """Bring files, several lanes of them side by side; returns those that are not what the manifest says."""
    fresh = not directory.exists()
    directory.mkdir(parents=True, exist_ok=True)
    files = copy.manifest.files
    for parent in {(directory / name).parent for name in names}:
        parent.mkdir(parents=True, exist_ok=True)
    lanes, stop = _lanes(names, copy), Future[None]()
    events: SimpleQueue[Event] = SimpleQueue()

    def bring(lane: list[str]) -> list[str]:
        had = {} if fresh else {name: disk.begun(directory / name, files[name]) for name in lane}
        sizes = {name: size for name, (size, _) in had.items()}
        ahead = max(1, place.workers // len(lanes))
        content = Content(place, copy, spans(_ranges(lane, copy, sizes)), fetching, ahead, stop)
        appender = disk.Appender(writing)
        wrong: list[str] = []
        moved = 0
        for name in lane:
            path, left = directory / name, files[name]["size"] - sizes.get(name, 0)
            digest = had[name][1] if name in had else hashlib.sha256()
            moved += sizes.get(name, 0)
            if left or not path.exists():  # one that is there as a whole is write-protected
                with appender.to(path):
                    while left:
                        piece = content.take(left)
                        appender.add(piece)
                        digest.update(piece)
                        left -= len(piece)
                        moved += len(piece)
                        if moved >= TOLD_BYTES:
                            events.put(moved)
                            moved = 0
            if digest.hexdigest() != files[name]["sha256"]:
                wrong.append(name)
            syncing.append(settling.submit(disk.sync, path))
            if len(syncing) > 4 * SYNCS:
                syncing.popleft().result()
        events.put(moved)
        return wrong

    with (
        place.threads() as fetching,
        ThreadPoolExecutor(SYNCS) as settling,
        ThreadPoolExecutor(LANES) as writing,
        ThreadPoolExecutor(LANES) as working,
    ):
        syncing: deque[Future[None]] = deque()
        try:
            wrong = _follow({working.submit(bring, lane) for lane in lanes}, events, told, beat)
            for settled in syncing:
                settled.result()
        finally:
            stop.set_result(None)
    return wrong


def _follow(
    lanes: set[Future[list[str]]], events: SimpleQueue[Event], told: Told, beat: Callable[[], None]
) -> list[str]:
    """Tell what comes, in the caller's own thread, until all lanes have ended; returns the wrong files."""
    wrong: list[str] = []
    for lane in lanes:
        lane.add_done_callback(events.put)
    while lanes:
        try:  # a signal that comes just before a wait does not end it
            event = events.get(timeout=AWAKE_S)
        except Empty:
            beat()
            continue
        if isinstance(event, Future):
            wrong += event.result()
            lanes.remove(event)
        else:
            told(event)
            beat()
    return wrong


def _lanes(names: list[str], copy: Copy) -> list[list[str]]:
    """Files in runs of about as many bytes, for as many threads; small ones are not worth a thread."""
    files = copy.manifest.files
    total = sum(files[name]["size"] for name in names)
    count = min(LANES, 1 + total // LANE_BYTES)
    lanes: list[list[str]] = [[] for _ in range(count)]
    before = 0
    for name in names:
        size = files[name]["size"]
        lanes[(2 * before + size) * count // (2 * total + 1)].append(name)
        before += size
    return [lane for lane in lanes if lane]


def _ranges(names: Iterable[str], copy: Copy, sizes: Mapping[str, int]) -> Iterator[tuple[int, int]]:
    """Where the rest of each file lies in the content, of which so many bytes are here."""
    begins = offsets(copy.manifest)
    for name in names:
        yield begins[name] + sizes.get(name, 0), begins[name] + copy.manifest.files[name]["size"]
