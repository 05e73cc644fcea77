"""Pull: from a remote into an attempt at an artifact, compared with the manifest while it streams."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any, BinaryIO

from pipeline.errors import NoResult, NotThere, RemoteError, StoreError
from pipeline.store.attempt import Attempt, attempt
from pipeline.store.durable import READ_ONLY
from pipeline.store.remote.copies import Copy, Span, find, lacking, offsets, part_name, spans
from pipeline.store.remote.place import Place
from pipeline.store.store import MANIFEST, Key, Store
from stages.base.files import shown_bytes

WRITE_BYTES = 256 << 10
"""Written at once: the kernel takes small pages that were used before; for 8 MiB it takes large fresh ones,
at three times the cost. Less is not worth another thread."""
SYNCS = 16
"""Files that are written to the disk at once: file systems put what waits into one transaction."""
Told = Callable[[int], None]


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
        content = _Content(place, copy, spans([(0, copy.bytes)]), pool)
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
    """Bring files, in order; returns those that are not what the manifest says."""
    fresh = not directory.exists()
    directory.mkdir(parents=True, exist_ok=True)
    files, begins = copy.manifest.files, offsets(copy.manifest)
    begun = {} if fresh else {name: _begun(directory / name, files[name]) for name in names}
    had = {name: size for name, (size, _) in begun.items()}
    ranges = ((begins[name] + had.get(name, 0), begins[name] + files[name]["size"]) for name in names)
    wrong: list[str] = []
    made: set[Path] = {directory}
    with (
        place.threads() as pool,
        ThreadPoolExecutor(SYNCS) as settling,
        ThreadPoolExecutor(1) as writing,
    ):
        content = _Content(place, copy, spans(ranges), pool)
        syncing: deque[Future[None]] = deque()
        for name in names:
            path = directory / name
            size, digest = begun.get(name, (0, hashlib.sha256()))
            told(size)
            if path.parent not in made:
                path.parent.mkdir(parents=True, exist_ok=True)
                made.add(path.parent)
            with _open(path, files[name]["size"]) as file:
                left = files[name]["size"] - size
                while left:
                    piece = content.take(left)
                    written = writing.submit(_write, file, piece) if len(piece) > WRITE_BYTES else None
                    digest.update(piece)
                    _write(file, piece) if written is None else written.result()
                    left -= len(piece)
                    told(len(piece))
                    beat()
            if digest.hexdigest() != files[name]["sha256"]:
                wrong.append(name)
            syncing.append(settling.submit(_sync, path))
            if len(syncing) > 4 * SYNCS:
                syncing.popleft().result()
        for future in syncing:
            future.result()
    return wrong


class _Content:
    """Spans of a copy as one stream: fetched several at a time, handed out in order."""

    def __init__(self, place: Place, copy: Copy, wanted: Iterator[Span], pool: ThreadPoolExecutor) -> None:
        self._place, self._path, self._wanted, self._pool = place, copy.path, wanted, pool
        self._coming: deque[Future[bytes]] = deque()
        self._rest = memoryview(b"")
        self._fetch_ahead()

    def _fetch_ahead(self) -> None:
        while len(self._coming) < self._place.workers:
            span = next(self._wanted, None)
            if span is None:
                return
            name = part_name(self._path, span.part)
            self._coming.append(self._pool.submit(self._place.get, name, span.start, span.end))

    def take(self, most: int) -> memoryview:
        """The next bytes, `most` at most."""
        if not self._rest:
            try:
                self._rest = memoryview(self._coming.popleft().result())
            except BaseException:
                self.drop()
                raise
            self._fetch_ahead()
        piece, self._rest = self._rest[:most], self._rest[most:]
        return piece

    def drop(self) -> None:
        """No more is wanted."""
        for future in self._coming:
            future.cancel()


def _begun(path: Path, entry: Mapping[str, Any]) -> tuple[int, Any]:
    """Bytes of a file that are there and their digest; (0, …) where it has to be begun anew."""
    nothing = (0, hashlib.sha256())
    try:
        size = path.lstat().st_size
    except FileNotFoundError:
        return nothing
    if size > entry["size"] or not path.is_file() or path.is_symlink():
        path.unlink()
        return nothing
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while piece := file.read(WRITE_BYTES):
            digest.update(piece)
    if size == entry["size"] and digest.hexdigest() != entry["sha256"]:  # a power cut may leave zeros
        path.unlink()
        return nothing
    return size, digest


@contextlib.contextmanager
def _open(path: Path, size: int) -> Iterator[BinaryIO]:
    """For appending, never through a link; one that is there as a whole is write-protected."""
    if path.exists() and path.stat().st_size == size:
        with path.open("rb") as whole:
            yield whole
        return
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
    with os.fdopen(os.open(path, flags, 0o644), "ab") as file:
        yield file


def _write(file: BinaryIO, content: memoryview) -> None:
    """Append to a file, and have the kernel begin with the disk: `_sync` waits for the rest only."""
    begin = file.tell()
    for at in range(0, len(content), WRITE_BYTES):
        file.write(content[at : at + WRITE_BYTES])
    if len(content) > WRITE_BYTES:
        os.posix_fadvise(file.fileno(), begin, len(content), os.POSIX_FADV_DONTNEED)


def _sync(path: Path) -> None:
    """Write a file to the disk, and protect it, while the next ones come: a commit waits for nothing then."""
    with path.open("rb") as file:
        os.fchmod(file.fileno(), READ_ONLY)
        os.fsync(file.fileno())
