"""Artifacts on a remote: their directories, and manifests that can be trusted."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, replace
from pathlib import PurePosixPath

from pipeline.errors import NotThere, Refused, StoreError
from pipeline.store.remote.remote import Remote
from pipeline.store.store import MANIFEST, Key, Manifest, Store
from stages.base.files import parse_json

DIRECTORY = re.compile(r"([0-9a-f]{64})-[0-9a-f]{8}")


@dataclass(frozen=True)
class Copy:
    """One artifact on a remote."""

    path: str
    """Its directory below the remote's URL."""
    manifest: Manifest

    @property
    def bytes(self) -> int:
        """Size of its files."""
        return sum(entry["size"] for entry in self.manifest.files.values())


def from_store(store: Store, key: Key) -> tuple[Copy, bytes]:
    """Return the copy that a push makes, with links replaced by files, and its manifest's content."""
    problem = store.problem(key)
    if problem is not None:
        raise StoreError(f"{store.path(key)}: {problem}; only complete artifacts are pushed")
    manifest = store.manifest(key)
    files = {name: {"size": e["size"], "sha256": e["sha256"]} for name, e in manifest.files.items()}
    manifest = replace(manifest, files=files)
    content = json.dumps(asdict(manifest), indent=1, sort_keys=True).encode()
    return Copy(f"{key.stage}/{key.fingerprint}-{_short_digest(content)}", manifest), content


def directories(remote: Remote, stages: Iterable[str] | None = None) -> dict[Key, list[str]]:
    """Return by artifact all its directories, complete or not; of some stages only, or of all."""
    names = [name for name in sorted(stages or remote.list("")) if re.fullmatch(r"\w+", name)]
    listed: dict[Key, list[str]] = {}
    for stage, entries in zip(names, remote.map(remote.list, names), strict=True):
        for match in filter(None, map(DIRECTORY.fullmatch, sorted(entries))):
            listed.setdefault(Key(stage, match[1]), []).append(f"{stage}/{match[0]}")
    return listed


def find(
    remote: Remote, keys: Iterable[Key], on_refused: Callable[[Refused], object]
) -> dict[Key, list[Copy]]:
    """Return the copies of artifacts, newest first; report refused manifests. Files are not checked."""
    keys = list(keys)
    listed = directories(remote, {key.stage for key in keys}) if keys else {}

    def read(key: Key) -> list[Copy]:
        copies = []
        for path in listed.get(key, ()):
            try:
                copies.append(Copy(path, read_manifest(remote, path, key)))
            except NotThere:  # not complete yet, or being deleted
                continue
            except Refused as error:
                on_refused(error)
        return sorted(copies, key=lambda copy: copy.manifest.ended, reverse=True)  # of run --force: the last

    return dict(zip(keys, remote.map(read, keys), strict=True))


def read_manifest(remote: Remote, path: str, key: Key) -> Manifest:
    """Return the manifest of a directory; raise NotThere if there is none, and Refused if it is not right."""
    content = remote.read(f"{path}/{MANIFEST}")
    if not path.endswith(_short_digest(content)):
        content = remote.read(f"{path}/{MANIFEST}")  # it may have been changed on the way
    where = f"{remote.url}/{path}/{MANIFEST}"
    try:
        manifest = Manifest.from_json(parse_json(content))
    except ValueError as error:
        raise Refused(f"{where} is refused: malformed manifest ({error})") from error
    if (manifest.stage, manifest.fingerprint) != (key.stage, key.fingerprint):
        claimed = f"{manifest.stage}/{manifest.fingerprint}"
        raise Refused(f"{where} is refused: it claims to be {claimed:.100}")
    problem = next(filter(None, (_problem(manifest, name) for name in manifest.files)), None)
    if problem is None and not path.endswith(_short_digest(content)):
        problem = "its digest differs from the one in the directory's name"
    if problem is not None:
        raise Refused(f"{where} is refused: {problem}")
    return manifest


def missing(remote: Remote, copy: Copy) -> list[str]:
    """Return the files of a copy that are absent or of another size, and the manifest if it is absent."""
    listed = {name: entry.size for name, entry in remote.files(copy.path).items()}
    names = [name for name, entry in copy.manifest.files.items() if listed.get(name) != entry["size"]]
    return names if MANIFEST in listed else [*names, MANIFEST]


def _short_digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:8]


def _problem(manifest: Manifest, name: str) -> str | None:
    """Return why a file is refused; `Manifest.from_json` refuses names that lead elsewhere."""
    path, entry = PurePosixPath(name), manifest.files[name]
    if name == MANIFEST or not name.isprintable():
        return f"{name!r:.100} is not allowed as a file name"
    is_valid = entry.keys() == {"size", "sha256"} and entry["size"] >= 0
    if not is_valid or any(len(part.encode()) > 255 for part in path.parts):
        return f"{name[:100]} with {entry!r:.100} cannot be a file"
    if any(str(parent) in manifest.files for parent in path.parents):
        return f"{name[:100]} is below a name that is a file"
    return None
