"""Garbage collection: what no kept run needs.

Kept are living runs, pinned and named ones, and the newest distinct ones. Only what a recorded run made can
go: what no line of the history tells of is left alone, and nothing goes at all while the history itself is in
doubt. Starting a run and collecting exclude each other, so a run never finds an artifact whole that is about
to go.
"""

import contextlib
import shutil
import uuid
from collections.abc import Iterable, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from pipeline.errors import StoreError
from pipeline.store import history, leases, rehearsals
from pipeline.store.attempt import is_held
from pipeline.store.history import Record
from pipeline.store.store import Store
from pipeline.store.verify import artifacts


@dataclass(frozen=True)
class Garbage:
    """One directory that can go."""

    path: Path
    bytes: int
    kind: str
    """artifact, work (files and checkpoints of an attempt), logs, quarantine, or rehearsal."""


def collect(store: Store, keep: int, delete: bool) -> list[Garbage]:
    """List what no kept run needs, and remove it when `delete`.

    Args:
        store: the store.
        keep: newest runs to keep; runs with the same artifacts count once.
        delete: False only lists.

    Raises:
        StoreError: the history does not tell what is needed (nothing is removed then), or the store cannot
            be read or written.
    """
    try:
        busy = _busy(store)
        with leases.exclusive(store.root) if delete else contextlib.nullcontext():
            known = history.runs(store.root)
            garbage = [Garbage(path, _bytes(path), "rehearsal") for path in rehearsals.left(store)]
            if known or artifacts(store):
                _must_be_sure(store, known.values(), busy, history.doubt(store.root, known))
                garbage += _garbage(store, known.values(), keep, busy)
            for item in garbage if delete else ():
                _remove(store, item)
    except OSError as error:
        raise StoreError.of(error, store.root) from error
    return garbage


def strangers(store: Store) -> list[Path]:
    """Artifacts that no recorded run names: somebody put them here, or the history has lost their run."""
    made = {artifact for run in history.runs(store.root).values() for artifact in run.artifacts.values()}
    return [path for path in artifacts(store) if _name(path) not in made]


def kept(runs: Iterable[Record], keep: int, busy: Set[str] = frozenset()) -> list[Record]:
    """Living, pinned and named runs, and the newest `keep` of the others that differ in artifacts.

    Args:
        runs: all of them, oldest first: in the history's order, which no clock decides.
        keep: how many of those that nothing else keeps.
        busy: STAGE-DIGITS of artifacts that somebody builds now; a run that has one lives.
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


def _busy(store: Store) -> set[str]:
    """STAGE-DIGITS of artifacts whose attempts have a living owner; other machines' are watched at once."""
    places = sorted((store.root / ".work").glob("*"))
    with ThreadPoolExecutor(max_workers=64) as pool:
        held = list(pool.map(is_held, places))
    return {_seated(place) for place, lives in zip(places, held, strict=True) if lives}


def _must_be_sure(store: Store, runs: Iterable[Record], busy: Set[str], doubt: str | None) -> None:
    unknown = busy - {flat for run in runs for flat in _flat(run)}
    if unknown and doubt is None:
        doubt = f"{store.root / history.FILE}: does not know who builds {min(unknown)} now"
    if doubt is not None:
        raise StoreError(f"{doubt}; nothing is removed")


def _garbage(store: Store, runs: Iterable[Record], keep: int, busy: Set[str]) -> Iterable[Garbage]:
    """What a recorded run made and no kept run needs, but nothing that somebody writes now."""
    known = {artifact for run in runs for artifact in run.artifacts.values()}
    needed = {artifact for run in kept(runs, keep, busy) for artifact in run.artifacts.values()}
    spare = known - needed
    for path in artifacts(store):
        if _name(path) in spare:
            yield Garbage(path, _bytes(path), "artifact")
    flat = {artifact.replace("/", "-"): artifact for artifact in known}
    for kind, directory in (("work", ".work"), ("logs", ".logs")):
        for path in sorted((store.root / directory).glob("*")):
            artifact = flat.get(_seated(path))
            if artifact is None or _seated(path) in busy:
                continue
            finished = kind == "work" and (store.root / artifact).exists()
            if artifact in spare or finished:
                yield Garbage(path, _bytes(path), kind)
    for path in sorted(store.root.glob("*/.building-*")):
        name = f"{path.parent.name}/{path.name.removeprefix('.building-').partition('+')[0]}"
        if name in spare and name.replace("/", "-") not in busy:
            yield Garbage(path, _bytes(path), "work")
    for path in sorted((store.root / ".quarantine").glob("*")):
        yield Garbage(path, _bytes(path), "quarantine")


def _remove(store: Store, item: Garbage) -> None:
    """Remove a directory; an artifact is no artifact any more before its first file goes."""
    path = item.path
    if item.kind == "rehearsal":
        with rehearsals.alone(path.parent):
            return shutil.rmtree(path)
    if item.kind == "artifact":
        path = store.root / ".quarantine" / f"{_name(path).replace('/', '-')}-{uuid.uuid4().hex[:8]}"
        path.parent.mkdir(parents=True, exist_ok=True)
        item.path.rename(path)
    shutil.rmtree(path)


def _name(artifact: Path) -> str:
    return f"{artifact.parent.name}/{artifact.name}"


def _seated(place: Path) -> str:
    """STAGE-DIGITS of a directory of an attempt; +1 is the seat of a second one."""
    return place.name.partition("+")[0]


def _flat(run: Record) -> Sequence[str]:
    return [artifact.replace("/", "-") for artifact in run.artifacts.values()]


def _bytes(path: Path) -> int:
    """Bytes that removing frees; a link frees nothing of its target."""
    return sum(file.lstat().st_size for file in path.rglob("*") if not file.is_dir())
