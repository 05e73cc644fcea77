"""Deletion that pushes can see.

While gc deletes, a file below .gc exists. A push writes its manifest, waits until there is no such file, and
then checks its files: either gc started later and sees a young manifest, or it has ended and the push sees
which files are missing.
"""

from __future__ import annotations

import contextlib
import time
import uuid
from collections.abc import Callable, Iterator

from pipeline.errors import RemoteError
from pipeline.store.remote import GC
from pipeline.store.remote.remote import Remote
from pipeline.store.store import MANIFEST

WAIT_S, POLL_S = 60.0, 1.0
STALE_S = 600.0
"""A gc writes its file again before every deletion; one whose file is older than this has died."""


@contextlib.contextmanager
def deleting(remote: Remote, directory: str = GC) -> Iterator[Callable[[], float]]:
    """Let pushes wait; yield a function that tells them that this goes on and returns the remote's time."""
    name = uuid.uuid4().hex

    def get_time() -> float:
        remote.write(f"{directory}/{name}", b"gc")
        entry = remote.list(directory).get(name)
        if entry is None or not entry.modified:
            raise RemoteError(
                f"{remote.url}: reports no modification times, so the age of artifacts is unknown"
            )
        return entry.modified

    get_time()
    try:
        yield get_time
    finally:
        remote.remove(f"{directory}/{name}")


def wait_for_deletion(remote: Remote, path: str) -> None:
    """Wait until no gc is deleting; the manifest at `path` was written just now.

    Raises:
        RemoteError: also if a gc takes too long.
    """
    manifest = remote.list(path).get(MANIFEST)
    now, deadline = manifest.modified if manifest else 0.0, time.monotonic() + WAIT_S
    while any(now - entry.modified < STALE_S for entry in remote.list(GC).values()):
        if time.monotonic() > deadline:
            raise RemoteError(f"{remote.url}: `gc --remote` is deleting; push again when it has ended")
        time.sleep(POLL_S)


def remove(remote: Remote, path: str) -> None:
    """Remove an artifact, its manifest first."""
    remote.remove(f"{path}/{MANIFEST}")
    remote.map(lambda name: remote.remove(f"{path}/{name}"), remote.files(path))
    remote.remove_directory(path)
