"""Garbage collection: removal of directories that no retained run needs.

Retained are live, pinned and named runs, and the newest distinct others. Only files that a recorded run made
are removed: artifacts that the history does not mention stay, and nothing is removed while the history looks
incomplete. Starting a run and collecting garbage exclude each other, so a run never plans with an artifact
that is about to be removed.
"""

import contextlib
import shutil
import uuid
from collections.abc import Collection, Iterable, Sequence, Set
from dataclasses import dataclass
from pathlib import Path

from pipeline.errors import StoreError, store_errors
from pipeline.store import history, leases
from pipeline.store.attempt import FINAL_CHECKPOINTS, is_held
from pipeline.store.history import Record
from pipeline.store.store import Store
from pipeline.store.verify import artifacts


@dataclass(frozen=True)
class Garbage:
    """Directory that can be removed."""

    path: Path
    bytes: int
    kind: str
    """artifact, work (files and checkpoints of an attempt), checkpoints (of a finished one), logs,
    quarantine, or incomplete (on a remote)."""


def collect(store: Store, keep: int, delete: bool) -> list[Garbage]:
    """Return the directories that no retained run needs, and remove them if `delete` is True.

    Raises:
        StoreError: the history is incomplete (nothing is removed then), or the store cannot be read or
            written.
    """
    with store_errors(store.root):
        busy = {_artifact_of(work) for work in (store.root / ".work").glob("*") if is_held(work)}
        with leases.exclusive(store.root) if delete else contextlib.nullcontext():
            runs = history.runs(store.root).values()
            if gap := _find_gap(store, runs, busy):
                raise StoreError(f"{store.root / history.FILE}: {gap}; nothing is removed")
            garbage = list(_garbage(store, runs, keep, busy)) if runs else []
            for item in garbage if delete else ():
                _remove(store, item)
    return garbage


def unrecorded(store: Store) -> list[Path]:
    """Return the artifacts that no recorded run names, for example copies or artifacts of lost runs."""
    made = {artifact for run in history.runs(store.root).values() for artifact in run.artifacts.values()}
    return [path for path in artifacts(store) if _name(path) not in made]


def retained(runs: Iterable[Record], keep: int, busy: Set[str] = frozenset()) -> list[Record]:
    """Return live, pinned and named runs, and the newest `keep` distinct others.

    Args:
        runs: all runs, oldest first, in the order of the history (clocks of machines may differ).
        keep: number of other runs to retain; runs with the same artifacts count once.
        busy: STAGE-DIGITS of artifacts that are being built; a run with such an artifact is live.
    """
    chosen: list[Record] = []
    recent: set[tuple[str, ...]] = set()
    for run in reversed(list(runs)):
        identity = tuple(sorted(run.artifacts.values()))
        if run.state == "running" or run.pinned or run.name or not busy.isdisjoint(_flat(run)):
            chosen.append(run)
        elif identity in recent or len(recent) < keep:
            recent.add(identity)
            chosen.append(run)
    return chosen


def _find_gap(store: Store, runs: Collection[Record], busy: Set[str]) -> str | None:
    """Return what the history is missing, or None if it looks complete."""
    if not runs and artifacts(store):
        return "no run is recorded, so it is unknown which artifacts are needed"
    leases_of_runs = {run.lease for run in runs}
    for lock in sorted((store.root / ".leases").glob("*.lock")):
        if lock.stem not in leases_of_runs and leases.is_leased(store.root, lock.stem):
            return f"run {lock.stem} is running, but not recorded"
    unknown = busy - {flat for run in runs for flat in _flat(run)}
    return f"the run that builds {min(unknown)} now is not recorded" if unknown else None


def _garbage(store: Store, runs: Iterable[Record], keep: int, busy: Set[str]) -> Iterable[Garbage]:
    """Yield directories that a recorded run made, no retained run needs and no live attempt writes."""
    known = {artifact for run in runs for artifact in run.artifacts.values()}
    needed = {artifact for run in retained(runs, keep, busy) for artifact in run.artifacts.values()}
    unneeded = known - needed
    for path in artifacts(store):
        if _name(path) in unneeded:
            yield Garbage(path, _bytes(path), "artifact")
    flat = {artifact.replace("/", "-"): artifact for artifact in known}
    for kind, directory in (("work", ".work"), ("checkpoints", FINAL_CHECKPOINTS), ("logs", ".logs")):
        for path in sorted((store.root / directory).glob("*")):
            artifact = flat.get(_artifact_of(path))
            if artifact is None or _artifact_of(path) in busy:
                continue
            finished = kind == "work" and (store.root / artifact).exists()
            if artifact in unneeded or finished:
                yield Garbage(path, _bytes(path), kind)
    for path in sorted(store.root.glob("*/.building-*")):
        name = f"{path.parent.name}/{path.name.removeprefix('.building-').partition('+')[0]}"
        if name in unneeded:
            yield Garbage(path, _bytes(path), "work")
    for path in sorted((store.root / ".quarantine").glob("*")):
        yield Garbage(path, _bytes(path), "quarantine")


def _remove(store: Store, item: Garbage) -> None:
    """Remove a directory; an artifact is renamed first, so that it is never visible in part."""
    path = item.path
    if item.kind == "artifact":
        path = store.root / ".quarantine" / f"{_name(path).replace('/', '-')}-{uuid.uuid4().hex[:8]}"
        path.parent.mkdir(parents=True, exist_ok=True)
        item.path.rename(path)
    shutil.rmtree(path)


def _name(artifact: Path) -> str:
    return f"{artifact.parent.name}/{artifact.name}"


def _artifact_of(directory: Path) -> str:
    """Return STAGE-DIGITS of an attempt's directory, without the slot's suffix such as +1."""
    return directory.name.partition("+")[0]


def _flat(run: Record) -> Sequence[str]:
    return [artifact.replace("/", "-") for artifact in run.artifacts.values()]


def _bytes(path: Path) -> int:
    """Return the bytes that removal frees; targets of symbolic links are not removed."""
    return sum(file.lstat().st_size for file in path.rglob("*") if not file.is_dir())
