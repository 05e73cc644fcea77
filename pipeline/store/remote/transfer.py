"""Push and pull: copies of artifacts between a store and a remote."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Callable, Iterable
from pathlib import Path

from pipeline.errors import NoResult, NotThere, Refused, RemoteError, StoreError, store_errors
from pipeline.store.attempt import Attempt, attempt
from pipeline.store.remote.copies import Copy, find, from_store, missing
from pipeline.store.remote.remote import Remote
from pipeline.store.store import MANIFEST, Key, Store
from stages.base.files import difference

OnSize = Callable[[int], object]
"""Called with the size of each file that was copied, in bytes."""
PUSHES = 3
"""A push whose files are deleted by gc meanwhile starts again, this often at most."""


def push(remote: Remote, store: Store, key: Key) -> int:
    """Copy an artifact to the remote, without the files that are there already; return the bytes sent.

    The manifest is written in any case, last, which makes the artifact too young for any gc that lists it
    later. The files are then checked once more, because a gc may have been deleting them.
    Raise StoreError if the artifact is not what was committed.
    """
    copy, content = from_store(store, key)
    files, sent = copy.manifest.files, 0

    def upload(name: str) -> int:
        file = store.path(key) / name
        with store_errors(file):
            is_same = difference(file, files[name]) is None
        if not is_same:
            raise StoreError(f"{file}: not what was committed, so not pushed; see `grpoflow verify --deep`")
        remote.upload(file, f"{copy.path}/{name}")
        return int(files[name]["size"])

    for _ in range(PUSHES):
        names = [name for name in missing(remote, copy) if name != MANIFEST]
        sent += sum(remote.map(upload, names))
        remote.write(f"{copy.path}/{MANIFEST}", content)
        if not missing(remote, copy):
            return sent
    raise RemoteError(f"{remote.url}/{copy.path}: files disappeared after they were sent; push again")


def pull(
    remote: Remote,
    store: Store,
    key: Key,
    on_size: OnSize = lambda size: None,
    on_wait: Callable[[], None] = lambda: None,
) -> bool:
    """Copy an artifact into the store and commit it; files of an interrupted pull are reused.

    Return False if the store has it already or the remote does not. Raise Refused if all copies of the remote
    are damaged or malicious.
    """
    with store.lock(key, on_wait):
        if store.problem(key) is None:
            return False
        refused: list[RemoteError] = []
        copies = find(remote, [key], refused.append)[key]
        with attempt(store, key) as slot:
            for copy in copies:
                try:
                    _pull(remote, store, copy, slot, on_size)
                    return True
                except (Refused, NotThere) as error:  # gc deleted it since it was listed
                    refused.append(error)
    if refused:
        raise Refused(str(refused[-1]))
    return False


def _pull(remote: Remote, store: Store, copy: Copy, slot: Attempt, on_size: OnSize) -> None:
    directory = slot.work / f"pulled-{copy.path.rpartition('-')[2]}"
    download(remote, copy, directory, copy.manifest.files, on_size)
    slot.staging.rmdir()
    directory.rename(slot.staging)
    try:
        store.commit(slot.staging, copy.manifest)
    except NoResult as error:
        raise Refused(f"{remote.url}/{copy.path} is refused: {error}") from error
    slot.done()


def download(
    remote: Remote, copy: Copy, directory: Path, names: Iterable[str], on_size: OnSize = lambda size: None
) -> None:
    """Write files of a copy into a directory, where only files with the manifest's digests appear.

    Raise Refused if the remote sends other bytes, twice.
    """
    parts = directory.with_name(f"{directory.name}.parts")

    def fetch(name: str) -> int:
        entry, target, part = copy.manifest.files[name], directory / name, parts / uuid.uuid4().hex
        size = int(entry["size"])

        if target.is_file() and not target.is_symlink() and difference(target, entry) is None:
            return size
        target.parent.mkdir(parents=True, exist_ok=True)
        for _ in range(2):  # bytes may have been changed on the way
            remote.download(f"{copy.path}/{name}", part, size)
            if difference(part, entry) is None:
                part.replace(target)
                return size
        raise Refused(f"{remote.url}/{copy.path} is refused: {name} does not have its manifest's digest")

    with store_errors(directory):
        shutil.rmtree(parts, ignore_errors=True)
        parts.mkdir(parents=True)
        directory.mkdir(exist_ok=True)
        remote.map(fetch, names, on_size)
        shutil.rmtree(parts)
