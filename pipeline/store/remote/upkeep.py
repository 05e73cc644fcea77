"""Garbage collection of a remote; ages are judged by the remote's clock alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pipeline.errors import RemoteError
from pipeline.store.collect import retained
from pipeline.store.remote import GC, TEMPORARY, records
from pipeline.store.remote.copies import directories
from pipeline.store.remote.deletion import deleting, remove
from pipeline.store.remote.remote import Entry, Remote
from pipeline.store.store import MANIFEST, Key


@dataclass(frozen=True)
class Garbage:
    """One directory that can be deleted."""

    path: str
    bytes: int
    reason: str


def collect(remote: Remote, keep: int, grace_s: float, delete: bool) -> list[Garbage]:
    """Return, and with `delete` remove, what only forgotten runs made and what is incomplete.

    Files newer than `grace_s` are left alone, and so are artifacts that no recorded run made.
    """
    with deleting(remote, GC if delete else TEMPORARY) as get_time:
        listed, now = directories(remote), get_time()
        runs = records.runs(remote, now).values()
        needed = {artifact for run in retained(runs, keep) for artifact in run.artifacts.values()}
        unneeded = {artifact for run in runs for artifact in run.artifacts.values()} - needed
        if listed and not runs:
            rule = "no run is recorded there, so nothing tells which artifacts are needed; nothing is removed"
            raise RemoteError(f"{remote.url}: {rule}")

        def examine(key: Key, path: str, now: float) -> Garbage | None:
            files = remote.files(path)
            is_complete = MANIFEST in files
            if not _is_old(files, now - grace_s) or (is_complete and str(key) not in unneeded):
                return None
            reason = "no kept run needs it" if is_complete else "incomplete"
            return Garbage(path, sum(entry.size for entry in files.values()), reason)

        pairs = [(key, path) for key, paths in listed.items() for path in paths]
        results = remote.map(lambda pair: examine(*pair, now), pairs)
        garbage = {item: key for (key, _), item in zip(pairs, results, strict=True) if item is not None}
        if not delete:
            return list(garbage)
        removed = []
        for item, key in garbage.items():
            if examine(key, item.path, get_time()) is not None:  # else a push has renewed it
                remove(remote, item.path)
                removed.append(item)
        for directory in (TEMPORARY, GC):  # left by processes that died
            for name, entry in remote.list(directory).items():
                if _is_old({name: entry}, now - grace_s):
                    remote.remove(f"{directory}/{name}")
        return removed


def _is_old(files: Mapping[str, Entry], limit: float) -> bool:
    """Return True if there are files and all are older than a time; an unknown time counts as young."""
    return bool(files) and all(0 < entry.modified < limit for entry in files.values())
