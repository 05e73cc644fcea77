"""Garbage collection: what no kept run needs.

Kept are living runs, pinned and named ones, and the newest distinct ones. Starting a run and
collecting exclude each other, so a run never finds an artifact whole that is about to go.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from pipeline import history
from pipeline.attempt import is_held
from pipeline.history import Record
from pipeline.store import Store
from pipeline.verify import artifacts


@dataclass(frozen=True)
class Garbage:
    """One directory that can go."""

    path: Path
    bytes: int
    kind: str
    """artifact, work (files and checkpoints of an attempt), logs, or quarantine."""


def collect(store: Store, keep: int, delete: bool) -> list[Garbage]:
    """List what no kept run needs, and remove it when `delete`.

    Args:
        store: the store.
        keep: newest runs to keep; runs with the same artifacts count once.
        delete: False only lists.
    """
    with history.exclusive(store.root):
        garbage = list(_garbage(store, kept(history.runs(store.root).values(), keep)))
        for item in garbage if delete else ():
            shutil.rmtree(item.path)
    return garbage


def kept(runs: Iterable[Record], keep: int) -> list[Record]:
    """Living, pinned and named runs, and the newest `keep` of the others that differ in artifacts."""
    chosen: list[Record] = []
    recent: set[tuple[str, ...]] = set()
    for run in sorted(runs, key=lambda run: run.started, reverse=True):
        identity = tuple(sorted(run.artifacts.values()))
        if run.state == "running" or run.pinned or run.name:
            chosen.append(run)
        elif identity in recent or len(recent) < keep:
            recent.add(identity)
            chosen.append(run)
    return chosen


def _garbage(store: Store, runs: Iterable[Record]) -> Iterable[Garbage]:
    needed = {artifact for run in runs for artifact in run.artifacts.values()}
    for path in artifacts(store):
        if f"{path.parent.name}/{path.name}" not in needed:
            yield Garbage(path, _bytes(path), "artifact")
    flat = {artifact.replace("/", "-"): artifact for artifact in needed}
    for kind, directory in (("work", ".work"), ("logs", ".logs")):
        for path in sorted((store.root / directory).glob("*")):
            artifact = flat.get(path.name.partition("+")[0])  # +1: the seat of a second attempt
            finished = kind == "work" and artifact is not None and (store.root / artifact).exists()
            if artifact is None or (finished and not is_held(path)):
                yield Garbage(path, _bytes(path), kind)
    for path in sorted(store.root.glob("*/.building-*")):
        digits = path.name.removeprefix(".building-").partition("+")[0]
        if f"{path.parent.name}/{digits}" not in needed:
            yield Garbage(path, _bytes(path), "work")
    for path in sorted((store.root / ".quarantine").glob("*")):
        yield Garbage(path, _bytes(path), "quarantine")


def _bytes(path: Path) -> int:
    """Bytes that removing frees; a link frees nothing of its target."""
    return sum(file.lstat().st_size for file in path.rglob("*") if not file.is_dir())
