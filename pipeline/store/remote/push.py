"""Push: from a store to a remote, in parts, read once and compared with the manifest on the way."""

from __future__ import annotations

import hashlib
import itertools
from collections import deque
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import Future

from pipeline.errors import StoreError
from pipeline.store.remote import copies
from pipeline.store.remote.copies import (
    CONDEMNED,
    PUSHING,
    WHOLE,
    copy_name,
    directory,
    part_name,
    published,
    whole,
)
from pipeline.store.remote.place import Place
from pipeline.store.store import Key, Manifest, Store
from stages.base.files import open_regular


def is_there(place: Place, key: Key, refused: Collection[str] = ()) -> bool:
    """Whether a whole copy of an artifact is there that gc lets live.

    Args:
        place: the remote.
        key: which artifact.
        refused: paths of copies that were found damaged, and do not count.

    Raises:
        RemoteError: the remote does not answer.
    """
    listed = place.list(directory(key))
    names = [name.removesuffix(WHOLE) for name in listed if name.endswith(WHOLE)]
    return any(f"{n}{CONDEMNED}" not in listed and f"{directory(key)}/{n}" not in refused for n in names)


def push(
    place: Place,
    store: Store,
    key: Key,
    told: Callable[[int], None] = lambda count: None,
    refused: Collection[str] = (),
) -> int:
    """Bring an artifact to the remote, unless a whole copy is there; go on with what was begun.

    Args:
        place: the remote.
        store: where the artifact is.
        key: which one.
        told: hears of every so many bytes that are there now, from any thread.
        refused: as `is_there`.

    Returns:
        Bytes that were sent; 0 where it was there.

    Raises:
        StoreError: the artifact is not what was committed; the remote shows nothing of it then.
        RemoteError: the remote does not answer.
    """
    if is_there(place, key, refused):
        return 0
    whole(store, key)
    content, manifest = published(store, key)
    path, there = _begin(place, key, copy_name(content), refused)
    sent = 0

    def send(number: int, part: bytes) -> None:
        nonlocal sent
        name = part_name(path, number)
        if there.get(name.rpartition("/")[2]) != len(part):
            place.put(name, part)
            sent += len(part)
        told(len(part))

    with place.threads() as pool:
        under_way: deque[Future[None]] = deque()
        try:
            for number, part in enumerate(_parts(store, key, manifest)):
                if len(under_way) == place.workers:
                    under_way.popleft().result()
                under_way.append(pool.submit(send, number, part))
            while under_way:
                under_way.popleft().result()
        except BaseException:
            for future in under_way:
                future.cancel()
            raise
    place.put(path + WHOLE, content)
    place.remove(f"{path}/{PUSHING}")
    return sent + len(content)


def _begin(place: Place, key: Key, name: str, refused: Collection[str]) -> tuple[str, dict[str, int]]:
    """The directory of a copy that nobody condemned before it was known that we push there, and its parts."""
    for number in itertools.count():
        path = f"{directory(key)}/{name}" + (f"-{number}" if number else "")
        if path in refused:
            continue
        place.put(f"{path}/{PUSHING}", b"")  # before looking: gc spares what has begun before it condemns
        if path.rpartition("/")[2] + CONDEMNED not in place.list(directory(key)):
            return path, {part: entry.size for part, entry in place.list(path).items()}
        place.remove(f"{path}/{PUSHING}")
    raise AssertionError


def _parts(store: Store, key: Key, manifest: Manifest) -> Iterator[bytes]:
    """The content in parts, each file compared with its digest before the part that ends it is handed on."""
    part: list[bytes] = []
    size = 0
    for name in sorted(manifest.files):
        file, entry, digest = store.path(key) / name, manifest.files[name], hashlib.sha256()
        try:
            with open_regular(file) as stream:
                left = entry["size"]
                while left:
                    piece = stream.read(min(left, copies.PART_BYTES - size))
                    if not piece:
                        break
                    left -= len(piece)
                    digest.update(piece)
                    part.append(piece)
                    size += len(piece)
                    if not left and digest.hexdigest() != entry["sha256"]:
                        break
                    if size == copies.PART_BYTES:
                        yield b"".join(part)  # of one it is that one, uncopied
                        part, size = [], 0
        except OSError as error:
            raise StoreError.of(error, file) from error
        if left or digest.hexdigest() != entry["sha256"]:
            raise StoreError(
                f"{file}: is not what was committed; it was not pushed. See `grpoflow verify --deep`"
            )
    if part:
        yield b"".join(part)
