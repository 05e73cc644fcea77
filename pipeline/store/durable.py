"""Files that survive a power cut and that nobody changes by mistake."""

import errno
import json
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pipeline.errors import StoreError
from pipeline.fingerprint import file_digest

SMALL_BYTES = 1 << 16  # digesting this much costs less than opening it
NOT_THE_FILES = frozenset(
    {errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EBADF, errno.EINTR, errno.EACCES, errno.EPERM}
)
"""Errors of reading that say nothing of what is read."""
READ_ONLY = stat.S_IRUSR | stat.S_IRGRP | stat.S_IROTH


def settle(
    directory: Path, reserved: str, digested: Mapping[str, Mapping[str, Any]]
) -> dict[str, dict[str, Any]]:
    """Digest, fsync and write-protect every file; a link counts with its target's content.

    Args:
        directory: what a stage has written.
        reserved: a name that no file may have.
        digested: what is known of all files, where whoever wrote them has digested, fsynced and
            write-protected them; else empty.

    Raises:
        StoreError: a file has the name, or is not what is known of it.
    """
    files: dict[str, dict[str, Any]] = {}
    for path in sorted(directory.rglob("*")):
        name = path.relative_to(directory).as_posix()
        if path.is_dir() and not path.is_symlink():
            fsync_directory(path)
            continue
        if name == reserved:
            raise StoreError(f"{path}: the name is reserved for the store's own manifest")
        digest = digested[name]["sha256"] if name in digested else file_digest(path)
        files[name] = {"size": path.stat().st_size, "sha256": digest}
        if digested and files[name] != digested.get(name):
            raise StoreError(f"{path}: is not what was written there")
        if digested:
            continue
        if path.is_symlink():
            files[name]["link"] = os.readlink(path)
            continue
        with path.open("rb") as file:
            os.fsync(file.fileno())
        path.chmod(READ_ONLY)
    if digested.keys() - files.keys():
        raise StoreError(f"{directory / min(digested.keys() - files.keys())}: is not there any more")
    return files


def write_json(path: Path, values: Mapping[str, Any]) -> None:
    """Write a new file, and make it and its name last."""
    with path.open("w", encoding="utf-8") as file:
        json.dump(values, file, indent=1, sort_keys=True)
        file.flush()
        os.fsync(file.fileno())
    path.chmod(READ_ONLY)
    fsync_directory(path.parent)


def fsync_directory(path: Path) -> None:
    """Make the names in a directory last."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def unreadable(error: OSError, where: Path) -> str:
    """What is wrong with an artifact that cannot be read.

    Raises:
        StoreError: nothing is, as far as one can tell: it must not be moved away, nor built again.
    """
    if error.errno in NOT_THE_FILES:
        raise StoreError.of(error, where) from error
    return f"output unreadable: {error.filename} ({error.strerror})"


def damage(root: Path, name: str, entry: Mapping[str, Any], deep: bool) -> str | None:
    """How a file differs from its manifest's entry; with `deep` the digests of large files count, too."""
    try:
        size = (root / name).stat().st_size
    except FileNotFoundError:
        return f"output missing: {name}"
    if size != entry["size"]:
        return f"output corrupt: {name} has {size} bytes, committed with {entry['size']}"
    if deep or size <= SMALL_BYTES:
        digest = file_digest(root / name)
        if digest != entry["sha256"]:
            return f"output corrupt: {name} has sha256 {digest[:12]}…, committed with {entry['sha256'][:12]}…"
    return None
