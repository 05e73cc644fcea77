"""What all downloads share: the record of what came, verification, and the way into the artifact."""

import errno
import hashlib
import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from stages.base.errors import InputError
from stages.base.redact import redact
from stages.fetch.listing import Listed
from stages.fetch.sources import FetchConfig

INCOMPLETE = ".incomplete"
"""Suffix of a partial file; the modelscope client's."""
BLOCK = 1 << 20
Progress = Callable[[int, int], None]
"""Told the bytes that are here, and those in all."""


@dataclass(frozen=True)
class Arrived:
    """One file that is here, whole."""

    path: str
    """Path at the source."""
    size: int
    sha256: str
    """SHA-256 of the local file."""
    listed: bool
    """True if the source or the configuration named the digest, and it agreed."""


@dataclass(frozen=True)
class Downloaded:
    """A finished download."""

    origin: str
    """Name and source of the download, without secrets."""
    root: Path
    files: tuple[Arrived, ...]

    def record(self) -> dict[str, Any]:
        """Plain data for result.json: what the source resolved to, `content` being the digest of it all."""
        lines = sorted(f"{file.sha256}  {file.path}\n" for file in self.files)
        content = hashlib.sha256("".join(lines).encode()).hexdigest()
        return {"origin": self.origin, "content": content, "files": [asdict(file) for file in self.files]}


def directory(fetch: FetchConfig, work: Path) -> Path:
    """Return the download directory: fetch.cache_dir, else the stage's scratch, which survives a kill."""
    return work if fetch.cache_dir is None else Path(fetch.cache_dir).expanduser().absolute()


def bytes_here(root: Path, paths: Sequence[str]) -> int:
    """Bytes of these files that have arrived, partial ones included."""
    sizes = (_size(root / path) or _size(root / f"{path}{INCOMPLETE}") or 0 for path in paths)
    return sum(sizes)


def _size(file: Path) -> int | None:
    try:
        return file.stat().st_size
    except OSError:
        return None


def verify(root: Path, files: Sequence[Listed], origin: str) -> tuple[Arrived, ...]:
    """Read every file, compare it with its listing, and say which ones the listing cannot vouch for.

    Raises:
        InputError: a file is missing, or its size or digest is not the listed one.
    """
    arrived = []
    for file in files:
        path = root / file.path
        try:
            size, digest = path.stat().st_size, sha256(path)
        except OSError as error:
            raise InputError(path, None, f"can't be read: {error.strerror}", "run again") from error
        if file.size is not None and size != file.size:
            raise InputError(path, None, f"has {size} bytes, {origin} lists {file.size}", f"delete {path}")
        if file.sha256 is not None and digest != file.sha256:
            raise InputError(path, None, f"has sha256 {digest}, {origin} lists {file.sha256}", "delete it")
        arrived.append(Arrived(file.path, size, digest, file.sha256 is not None))
    unlisted = [file.path for file in arrived if not file.listed]
    if unlisted:
        print(f"{redact(origin)} lists no sha256 of {', '.join(unlisted)}: digested as they are", flush=True)
    return tuple(arrived)


def sha256(path: Path) -> str:
    """SHA-256 of a file's content, hexadecimal."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(BLOCK):
            digest.update(block)
    return digest.hexdigest()


def adopt(source: Path, target: Path) -> None:
    """Make a downloaded file the artifact's own file `target`, which must not exist.

    A second name (hard link) costs nothing; the first one stays, for another attempt when this one is
    killed and for other stores. Copied only where that can't be: another file system, or a shared
    cache's file of another user, which the store could not write-protect.
    """
    if source.stat().st_uid == os.getuid():
        try:
            os.link(source, target)
            return
        except OSError as error:
            if error.errno not in (errno.EPERM, errno.ENOTSUP, errno.EMLINK, errno.EXDEV):
                raise
    shutil.copyfile(source, target)


def take(source: Path, target: Path, copy: bool) -> None:
    """Link to a file of the user's own, or copy it where that is asked for."""
    if copy:
        shutil.copyfile(source, target)
    else:
        target.symlink_to(source.resolve())
