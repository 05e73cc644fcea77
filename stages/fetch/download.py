"""Shared parts of downloads: the record of what arrived, verification, and the way into the artifact."""

import errno
import hashlib
import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from stages.base.errors import InputError
from stages.base.files import file_digest
from stages.base.redact import redact
from stages.fetch.listing import Listed
from stages.fetch.sources import FetchConfig

INCOMPLETE = ".incomplete"
"""Suffix of a partial file, as the modelscope client names it."""
Progress = Callable[[int, int], None]
"""Called with the bytes that are here, and the total."""


@dataclass(frozen=True)
class Arrived:
    """One complete file."""

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
        """Return plain data for result.json; `content` is the digest of all files."""
        lines = sorted(f"{file.sha256}  {file.path}\n" for file in self.files)
        content = hashlib.sha256("".join(lines).encode()).hexdigest()
        return {"origin": self.origin, "content": content, "files": [asdict(file) for file in self.files]}


def directory(fetch: FetchConfig, work: Path) -> Path:
    """Return the download directory: fetch.cache_dir, else the stage's scratch, which survives a kill."""
    return work if fetch.cache_dir is None else Path(fetch.cache_dir).expanduser().absolute()


def bytes_here(root: Path, paths: Sequence[str]) -> int:
    """Return the bytes of these files that have arrived, partial files included."""
    return sum(_size(root / path) or _size(root / f"{path}{INCOMPLETE}") for path in paths)


def _size(file: Path) -> int:
    try:
        return file.stat().st_size
    except FileNotFoundError:
        return 0


def verify(root: Path, files: Sequence[Listed], origin: str) -> tuple[Arrived, ...]:
    """Compare every file with its listing; print which ones are listed without a digest.

    Raises:
        InputError: a file is missing, or its size or digest is not the listed one.
    """
    arrived = []
    for file in files:
        path = root / file.path
        try:
            size, digest = path.stat().st_size, file_digest(path)
        except OSError as error:
            raise InputError(path, None, f"can't be read: {error.strerror}", "run again") from error
        if file.size not in (None, size) or file.sha256 not in (None, digest):
            rule = f"has {size} bytes and sha256 {digest}; {origin} lists {file.size} and {file.sha256}"
            raise InputError(path, None, rule, "delete it")
        arrived.append(Arrived(file.path, size, digest, file.sha256 is not None))
    unlisted = [file.path for file in arrived if not file.listed]
    if unlisted:
        print(f"{redact(origin)} lists no sha256 for {', '.join(unlisted)}; accepted as they are", flush=True)
    return tuple(arrived)


def adopt(source: Path, target: Path) -> None:
    """Make a downloaded file a file of the artifact, as a hard link if possible.

    The download stays for later attempts and other stores. It is copied from another file system, and from
    another user's cache, whose file the store could not write-protect.
    """
    if source.stat().st_uid == os.getuid():
        try:
            os.link(source, target)
            return
        except OSError as error:
            if error.errno not in (errno.EPERM, errno.ENOTSUP, errno.EMLINK, errno.EXDEV):
                raise
    shutil.copyfile(source, target)


def link(source: Path, target: Path) -> None:
    """Link to a user's file."""
    target.symlink_to(source.resolve())
