"""Garbage collection of a remote; ages are judged by the remote's clock alone."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from pathlib import Path

from pipeline.errors import RemoteError
from pipeline.store.collect import Garbage, retained
from pipeline.store.remote import TEMPORARY, records
from pipeline.store.remote.copies import directories
from pipeline.store.remote.remote import Entry, Remote
from pipeline.store.store import MANIFEST, Key


def collect(remote: Remote, keep: int, grace_s: float, delete: bool) -> list[Garbage]:
    """Return, and with `delete` remove, what only forgotten runs made and what is incomplete.

    Paths are relative to the remote's URL.
    Files newer than `grace_s` are left alone, and so are artifacts that no recorded run made. Each directory
    is examined just before it is removed, because a push may have renewed its manifest.
    """
    if not remote.list(""):  # perhaps a mistyped URL, where asking for the time would create a directory
        return []
    listed, now = directories(remote), _current_time(remote)
    runs = records.runs(remote, now).values()
    needed = {artifact for run in retained(runs, keep) for artifact in run.artifacts.values()}
    unneeded = {artifact for run in runs for artifact in run.artifacts.values()} - needed
    if listed and not runs:
        rule = "no run is recorded there, so nothing tells which artifacts are needed; nothing is removed"
        raise RemoteError(f"{remote.url}: {rule}")

    def examine(key: Key, path: str) -> Garbage | None:
        files = remote.files(path)
        is_complete = MANIFEST in files
        if not _is_old(files, now - grace_s) or (is_complete and str(key) not in unneeded):
            return None
        if delete:
            _remove(remote, path, files)
        size = sum(entry.size for entry in files.values())
        return Garbage(Path(path), size, "artifact" if is_complete else "incomplete")

    pairs = [(key, path) for key, paths in listed.items() for path in paths]
    garbage = [item for item in remote.map(lambda pair: examine(*pair), pairs) if item is not None]
    if delete:  # left by processes that died
        for name, entry in remote.list(TEMPORARY).items():
            if _is_old({name: entry}, now - grace_s):
                remote.remove(f"{TEMPORARY}/{name}")
    return garbage


def _current_time(remote: Remote) -> float:
    """Return the time by the remote's clock."""
    path = f"{TEMPORARY}/{uuid.uuid4().hex}"
    remote.write(path, b"gc")
    try:
        entry = remote.list(TEMPORARY).get(path.rpartition("/")[2])
    finally:
        remote.remove(path)
    if entry is None or not entry.modified:
        raise RemoteError(f"{remote.url}: reports no modification times, so the age of artifacts is unknown")
    return entry.modified


def _remove(remote: Remote, path: str, files: Iterable[str]) -> None:
    """Remove an artifact, its manifest first; stop if a push writes the manifest again."""
    remote.remove(f"{path}/{MANIFEST}")
    if MANIFEST in remote.list(path):
        return
    for name in files:
        remote.remove(f"{path}/{name}")
    if not remote.files(path):
        remote.remove_directory(path)


def _is_old(files: Mapping[str, Entry], limit: float) -> bool:
    """Return True if there are files and all are older than a time; an unknown time counts as young."""
    return bool(files) and all(0 < entry.modified < limit for entry in files.values())
