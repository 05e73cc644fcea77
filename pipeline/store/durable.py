"""Durable files: digested, fsynced and write-protected, and checks for later damage."""

import errno
import json
import os
import stat
from collections.abc import Iterable, Mapping, Set
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from pipeline.errors import StoreError
from stages.base.files import difference, digest_entry

SMALL_BYTES = 1 << 16  # hashing this much costs less than opening the file
TRANSIENT_ERRORS = frozenset(
    {errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EBADF, errno.EINTR, errno.EACCES, errno.EPERM}
)
"""Read errors that do not show that the file is damaged, such as missing permission or memory."""
MAY_BE_EMPTY = (".jsonl", ".db")
"""Suffixes of required files that may have zero bytes."""
READ_ONLY = stat.S_IRUSR | stat.S_IRGRP | stat.S_IROTH


def settle(
    directory: Path, reserved: str, digested: Mapping[str, Mapping[str, Any]]
) -> dict[str, dict[str, Any]]:
    """Digest, fsync and write-protect every file; for a symbolic link, its target's content is digested.

    Args:
        directory: output of a stage, or a pulled artifact.
        reserved: file name that is not allowed.
        digested: entries of files that were digested while they were downloaded.

    Returns:
        Relative path -> {size (bytes), sha256}, with the target of a symbolic link as `link`.

    Raises:
        StoreError: a file has the reserved name.
    """
    files: dict[str, dict[str, Any]] = {}
    for path in sorted(directory.rglob("*")):
        name = path.relative_to(directory).as_posix()
        if name == reserved:
            raise StoreError(f"{path}: the name is reserved for the store's manifest")
        if path.is_dir() and not path.is_symlink():
            fsync_directory(path)
            continue
        known = digested.get(name)
        files[name] = (
            {"size": path.stat().st_size, "sha256": known["sha256"]} if known else digest_entry(path)
        )
        if path.is_symlink():
            files[name]["link"] = os.readlink(path)
            continue
        with path.open("rb") as file:
            os.fsync(file.fileno())
        path.chmod(READ_ONLY)
    return files


def missing_file(required: Iterable[str], files: Mapping[str, Mapping[str, Any]]) -> str | None:
    """Return the first pattern that no file matches; `a|b` means a or b, and an empty file does not count.

    Args:
        required: patterns of paths.
        files: relative path -> entry of the manifest.
    """
    names = {name for name, entry in files.items() if entry["size"] or name.endswith(MAY_BE_EMPTY)}
    directories = {name.rpartition("/")[0] for name in names}
    for pattern in required:
        if not any(_matches(alternative, names, directories) for alternative in pattern.split("|")):
            return pattern.replace("|", " or ")
    return None


def _matches(pattern: str, names: Set[str], directories: Set[str]) -> bool:
    """Return True if a file matches, without comparing every name for each of hundreds of ranks."""
    directory, _, last = pattern.rpartition("/")
    if last == "*" and directory in directories:
        return True
    return pattern in names or ("*" in pattern and any(fnmatchcase(name, pattern) for name in names))


def write_json(path: Path, values: Mapping[str, Any]) -> None:
    """Write a read-only JSON file, and fsync it and its directory."""
    with path.open("w", encoding="utf-8") as file:
        json.dump(values, file, indent=1, sort_keys=True)
        file.flush()
        os.fsync(file.fileno())
    path.chmod(READ_ONLY)
    fsync_directory(path.parent)


def fsync_directory(path: Path) -> None:
    """Fsync a directory, so that its entries survive a power failure."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def unreadable(error: OSError, where: Path) -> str:
    """Return a description of the damage to an artifact that cannot be read.

    Raises:
        StoreError: the error does not show damage, so the artifact must be neither moved nor rebuilt.
    """
    if error.errno in TRANSIENT_ERRORS:
        raise StoreError.from_os_error(error, where) from error
    return f"output unreadable: {error.filename} ({error.strerror})"


def damage(root: Path, name: str, entry: Mapping[str, Any], deep: bool) -> str | None:
    """Return how a file differs from its manifest entry, or None; `deep` compares digests of large files."""
    try:
        problem = difference(root / name, entry, deep or entry["size"] <= SMALL_BYTES)
    except FileNotFoundError:
        return f"output missing: {name}"
    return problem and f"output corrupt: {name} {problem}"
