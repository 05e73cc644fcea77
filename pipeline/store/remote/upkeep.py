"""Looking after a remote: is each copy what its manifest says, and what does no kept run need?

What gc removes it has condemned at least `grace` before, by the remote's own clock, and it looks again then
whether it is needed. Who pushes tells so before looking for condemnations, and makes another copy where one
is: hence a copy that is removed is none that anybody has begun to rely on since.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from pipeline.errors import NotThere, RemoteError
from pipeline.store.collect import kept
from pipeline.store.remote import records
from pipeline.store.remote.choose import remote_keys
from pipeline.store.remote.copies import CONDEMNED, WHOLE, Copy, directory, lacking, read_manifest
from pipeline.store.remote.place import Entry, Place
from pipeline.store.remote.pull import damage
from pipeline.store.store import Key
from stages import must_hold

DAY_S = 86_400.0
LIVES_S = 14 * DAY_S
"""A run that has told no end is taken for living for as long after it has told something."""


@dataclass(frozen=True)
class Finding:
    """One copy that is not what its manifest says."""

    path: str
    problem: str


@dataclass(frozen=True)
class Doomed:
    """One copy that can go."""

    path: str
    why: str
    goes: bool
    """Whether it was condemned long enough ago."""
    is_marked: bool


def verify(place: Place, deep: bool) -> Iterator[Finding | None]:
    """One value for each whole copy: None, or what is wrong with it.

    Raises:
        RemoteError: the remote does not answer.
    """
    for key in remote_keys(place):
        for name in place.list(directory(key)):
            if name.endswith(WHOLE):
                path = f"{directory(key)}/{name.removesuffix(WHOLE)}"
                problem = _problem(place, key, path, deep)
                yield None if problem is None else Finding(path, problem)


def _problem(place: Place, key: Key, path: str, deep: bool) -> str | None:
    try:
        copy = Copy(path, read_manifest(place, path, key))
    except NotThere:  # gc has removed it since it was listed
        return None
    except RemoteError as error:
        if error.refused is None:
            raise
        return str(error)
    manifest = copy.manifest
    sizes = {name: entry["size"] for name, entry in manifest.files.items()}
    lack = must_hold.lacking(manifest.stage, manifest.config, sizes)
    if lack is not None:
        return f"is without {lack}"
    return lacking(place, copy) or (damage(place, copy) if deep else None)


def condemn(place: Place, path: str) -> None:
    """Let nobody begin to rely on a copy."""
    place.put(path + CONDEMNED, b"condemned\n")


def collect(place: Place, keep: int, grace_s: float, delete: bool) -> list[Doomed]:
    """List what no kept run needs; with `delete` condemn it, or remove what was condemned before.

    Args:
        place: the remote.
        keep: newest runs to keep; runs with the same artifacts count once.
        grace_s: what is younger is left alone, and what is condemned stays for as long, seconds.
        delete: False only lists.

    Raises:
        RemoteError: the remote does not answer, or no run there tells what is needed.
    """
    now, keys = place.now(), remote_keys(place)
    needed, spare = _needs(place, keep, now)
    if keys and not needed and not spare:
        raise RemoteError(
            f"{place.url}: no run is recorded there that tells what is needed; nothing is removed"
        )

    def look(key: Key) -> list[Doomed]:
        return list(_doomed(place, key, str(key) in needed, str(key) in spare, now - grace_s))

    doomed = [item for found in place.map(look, keys) for item in found]
    if delete:
        place.map(lambda item: _step(place, item), doomed)
    return doomed


def _step(place: Place, item: Doomed) -> None:
    """Condemn a copy, or remove one that has been condemned long enough."""
    if item.goes:
        _remove(place, item.path)
    elif not item.is_marked:
        condemn(place, item.path)


def _needs(place: Place, keep: int, now: float) -> tuple[set[str], set[str]]:
    """Artifacts (STAGE/DIGITS) that kept runs need, and those that only others made."""
    known, told = records.runs(place), records.last_told(place)
    for run in known.values():
        if run.state == "died" and now - told.get(run.id, now) < LIVES_S:
            run.state = "running"
    made = {artifact for run in known.values() for artifact in run.artifacts.values()}
    needed = {artifact for run in kept(known.values(), keep) for artifact in run.artifacts.values()}
    return needed, made - needed


def _doomed(place: Place, key: Key, needed: bool, spare: bool, before: float) -> Iterator[Doomed]:
    """Copies of one artifact that can go: of no kept run, a second one, or left unfinished."""
    listed = place.list(directory(key))
    names = {name.removesuffix(WHOLE).removesuffix(CONDEMNED) for name in listed}
    living = sorted(
        (name for name in names if name + WHOLE in listed and name + CONDEMNED not in listed),
        key=lambda name: (listed[name + WHOLE].modified, name),
    )
    for name in sorted(names):
        path, mark = f"{directory(key)}/{name}", listed.get(name + CONDEMNED)
        whole = name + WHOLE in listed
        if mark is not None:
            is_useless = not whole or not needed or bool(living)
            if is_useless:
                yield Doomed(path, "condemned", mark.modified <= before, True)
        elif not whole:
            if _newest(place.list(path)) <= before:
                yield Doomed(path, "unfinished", False, False)
        elif listed[name + WHOLE].modified <= before and (spare or name in living[1:]):
            yield Doomed(path, "no kept run needs it" if spare else "there twice", False, False)


def _newest(entries: Mapping[str, Entry]) -> float:
    return max((entry.modified for entry in entries.values()), default=0.0)


def _remove(place: Place, path: str) -> None:
    """Remove a copy; it is no copy any more before its first part goes, and its mark goes last."""
    place.remove(path + WHOLE)
    for name in place.list(path):
        place.remove(f"{path}/{name}")
    place.remove_directory(path)
    place.remove(path + CONDEMNED)
    place.remove_directory(path.rpartition("/")[0])
