"""Copies of artifacts on a remote: which there are, and where each file of one lies in its parts."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import PurePosixPath
from typing import Any

from pipeline.errors import NotThere, RemoteError, StoreError
from pipeline.store.remote.place import Place
from pipeline.store.store import DIGITS, MANIFEST, Key, Manifest, Store

PART_BYTES = 8 << 20
ROOM = "artifacts"
CONDEMNED, WHOLE = ".condemned", ".json"
PUSHING = "pushing"


@dataclass(frozen=True)
class Copy:
    """A whole copy of an artifact."""

    path: str
    """Below the remote's URL; its parts lie in it."""
    manifest: Manifest

    @property
    def bytes(self) -> int:
        """Of its content."""
        return sum(entry["size"] for entry in self.manifest.files.values())


@dataclass(frozen=True)
class Span:
    """Bytes `start` to `end` of one part."""

    part: int
    start: int
    end: int


def directory(key: Key) -> str:
    """Where the copies of an artifact lie."""
    return f"{ROOM}/{key.stage}/{key.fingerprint}"


def part_name(path: str, number: int) -> str:
    """The object of one part of a copy."""
    return f"{path}/{number:08d}"


def find(place: Place, key: Key) -> list[Copy]:
    """The whole copies of an artifact, those first that gc does not want.

    Raises:
        RemoteError: the remote does not answer, or a manifest there is refused.
    """
    listed = place.list(directory(key))
    names = [name.removesuffix(WHOLE) for name in listed if name.endswith(WHOLE)]
    copies, refused = [], None
    for name in sorted(names, key=lambda n: (f"{n}{CONDEMNED}" in listed, n)):
        path = f"{directory(key)}/{name}"
        try:
            copies.append(Copy(path, read_manifest(place, path, key)))
        except NotThere:  # gc has removed it since it was listed
            continue
        except RemoteError as error:
            if error.refused is None:
                raise
            refused = error
    if refused is not None and not copies:
        raise refused
    return copies


def read_manifest(place: Place, path: str, key: Key) -> Manifest:
    """The manifest of a copy.

    Raises:
        RemoteError: it is not there, malformed, names files outside its artifact, or is another artifact's.
    """
    where = f"{place.url}/{path}{WHOLE}"
    try:
        content = place.read(path + WHOLE)
        if not _is_named(path, content):
            content = place.read(path + WHOLE)  # it may have been changed on the way
        manifest = Manifest.of(json.loads(content))
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise RemoteError.of_copy(path, f"{where}: is no manifest ({error})") from error
    if (manifest.stage, manifest.fingerprint) != (key.stage, key.fingerprint):
        claimed = f"{manifest.stage}/{manifest.fingerprint[:DIGITS]}"
        reason = f"{where}: is refused, for it claims to be {claimed} and {key} was asked for"
        raise RemoteError.of_copy(path, reason)
    problem = _first_flaw(manifest) or _clash(manifest.files)
    if problem is None and not _is_named(path, content):
        problem = "it is not the manifest that its name tells"
    if problem is not None:
        raise RemoteError.of_copy(path, f"{where}: is refused: {problem}")
    return manifest


def published(store: Store, key: Key) -> tuple[bytes, Manifest]:
    """A local artifact's manifest as the remote has it: a link counts as the file that it leads to."""
    manifest = store.manifest(key)
    files = {
        name: {"size": entry["size"], "sha256": entry["sha256"]} for name, entry in manifest.files.items()
    }
    changed = replace(manifest, files=files)
    return json.dumps(asdict(changed), indent=1, sort_keys=True).encode(), changed


def copy_name(content: bytes) -> str:
    """The name of the copy with this manifest."""
    return hashlib.sha256(content).hexdigest()[:32]


def _is_named(path: str, content: bytes) -> bool:
    return path.rpartition("/")[2].partition("-")[0] == copy_name(content)


def lacking(place: Place, copy: Copy) -> str | None:
    """What of a copy's content is not there, by the sizes of its parts; None where it is complete.

    Raises:
        RemoteError: the remote does not answer.
    """
    there = place.list(copy.path)
    for number in range(-(-copy.bytes // PART_BYTES)):
        size = min(PART_BYTES, copy.bytes - number * PART_BYTES)
        entry = there.get(f"{number:08d}")
        if entry is None or entry.size != size:
            held = "missing" if entry is None else f"{entry.size} bytes long"
            return f"part {number} of {copy.path} is {held}, must have {size} bytes"
    return None


def offsets(manifest: Manifest) -> dict[str, int]:
    """Where each file begins in the content, in the order in which they lie there."""
    places, offset = {}, 0
    for name in sorted(manifest.files):
        places[name] = offset
        offset += manifest.files[name]["size"]
    return places


def spans(ranges: Iterable[tuple[int, int]]) -> Iterator[Span]:
    """Ascending ranges (begin, end) of the content as pieces of parts; what touches is one piece."""
    begun: Span | None = None
    for begin, end in ranges:
        while begin < end:
            number, start = divmod(begin, PART_BYTES)
            stop = min(PART_BYTES, start + end - begin)
            if begun is not None and (begun.part, begun.end) == (number, start):
                begun = replace(begun, end=stop)
            else:
                yield from () if begun is None else (begun,)
                begun = Span(number, start, stop)
            begin = number * PART_BYTES + stop
    yield from () if begun is None else (begun,)


def _first_flaw(manifest: Manifest) -> str | None:
    flaws = (_flaw(name, entry["size"]) for name, entry in manifest.files.items())
    return next(filter(None, flaws), None)


def _flaw(name: str, size: int) -> str | None:
    """Why a file is refused; Manifest has refused what leads out of the artifact."""
    path = PurePosixPath(name)
    if path.as_posix() != name or name in (".", MANIFEST) or not name.isprintable():
        return f"a file of it is called {name!r:.100}"
    if any(len(part.encode()) > 255 for part in path.parts) or size < 0:
        return f"it has a file {name[:100]} of {size} bytes"
    return None


def _clash(names: Mapping[str, Any]) -> str | None:
    """A name that is a file and a directory."""
    for name in names:
        for parent in PurePosixPath(name).parents:
            if str(parent) in names:
                return f"{parent} is a file and a directory"
    return None


def whole(store: Store, key: Key) -> None:
    """Raise StoreError unless the local artifact is whole."""
    problem = store.problem(key)
    if problem is not None:
        raise StoreError(f"{store.path(key)}: {problem}; only what is whole is pushed")
