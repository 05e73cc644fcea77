"""Shared parts of downloads: the record of what arrived, verification, and the way into the artifact."""

import errno
import fcntl
import hashlib
import os
import shutil
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from stages.base.errors import InputError
from stages.base.files import file_digest, understood
from stages.base.redact import redact
from stages.fetch.listing import Listed
from stages.fetch.sources import FetchConfig

FICLONE = 0x40049409
"""Request of ioctl_ficlone(2), which Btrfs, XFS and other file systems of Linux support."""


@dataclass(frozen=True)
class Arrived:
    """One complete file."""

    path: str
    size: int
    sha256: str
    listed: bool
    """True if the source or the configuration named the digest, and it agreed."""


@dataclass(frozen=True)
class Downloaded:
    """A finished download."""

    origin: str
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


def verify(root: Path, files: Sequence[Listed], origin: str) -> tuple[Arrived, ...]:
    """Compare every file with its listing; print which ones are listed without a digest.

    Raise InputError if a file is missing, or its size or digest is not the listed one.
    """
    arrived = []
    for file in files:
        path = root / file.path
        with understood(path, "the file", "run again"):
            size, digest = path.stat().st_size, file_digest(path)
        if file.size not in (None, size) or file.sha256 not in (None, digest):
            rule = f"has {size} bytes and sha256 {digest}; {origin} lists {file.size} and {file.sha256}"
            raise InputError(path, None, rule, "delete it")
        arrived.append(Arrived(file.path, size, digest, file.sha256 is not None))
    unlisted = [file.path for file in arrived if not file.listed]
    if unlisted:
        print(f"{redact(origin)} lists no sha256 for {', '.join(unlisted)}; accepted as they are", flush=True)
    return tuple(arrived)


def adopt(source: Path, target: Path, scratch: Path) -> None:
    """Make a downloaded file a file of the artifact, which the store write-protects.

    This user's files below `scratch`, the stage's own directory, become hard links if possible. Files of
    fetch.cache_dir stay writable because they are copied; where the file system can, the copy shares its
    blocks with them. Files of another user, who may have begun the download, are copied too.
    """
    if source.is_relative_to(scratch) and source.stat().st_uid == os.getuid():
        try:
            os.link(source, target)
            return
        except OSError as error:
            if error.errno not in (errno.EPERM, errno.ENOTSUP, errno.EMLINK, errno.EXDEV):
                raise
    if not _clone(source, target):
        shutil.copyfile(source, target)


def _clone(source: Path, target: Path) -> bool:
    """Create `target` as a copy that shares the blocks of `source`; return False if that is impossible."""
    with source.open("rb") as read, target.open("xb") as written:
        try:
            fcntl.ioctl(written, FICLONE, read.fileno())
        except OSError:
            return False
    return True


def link(source: Path, target: Path) -> None:
    """Link to a user's file."""
    target.symlink_to(source.resolve())
