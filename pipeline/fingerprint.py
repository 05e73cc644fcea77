"""Identity of an artifact: what went into it, and nothing about where or when.

A fingerprint is the SHA-256 of canonical JSON. Paths, host names and times stay out, so that a
store can move and two users can share one.
"""

import hashlib
import json
import os
import time
from collections.abc import Mapping, Set
from pathlib import Path
from typing import Any

from pipeline.errors import ConfigError, Problem
from stages.base.files import open_regular, read_json

DIGESTS = ".digests.json"
"""The cache's file in a store."""
SETTLED_NS = 2_000_000_000
"""A file that changed so shortly before it was read may change again within one tick of its file system's
clock, and look the same."""


def canonical(value: object) -> str:
    """JSON with sorted keys and no spaces; floats as Python writes them, NaN refused."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def fingerprint(
    stage: str,
    version: int,
    config: Mapping[str, Any],
    inputs: Mapping[str, str],
    external: Mapping[str, str],
) -> str:
    """The identity of one stage's artifact.

    Args:
        stage: the stage's name.
        version: its code version, raised by hand when its output changes.
        config: what counts of the part of the configuration that it reads (stages/base/identity.py).
        inputs: input name -> fingerprint.
        external: name of a user's file -> SHA-256 of its content.

    Returns:
        64 hexadecimal digits.
    """
    content = {
        "stage": stage,
        "version": version,
        "config": config,
        "inputs": dict(inputs),
        "external": dict(external),
    }
    return hashlib.sha256(canonical(content).encode()).hexdigest()


def without(config: Mapping[str, Any], keys: Set[tuple[str, str]]) -> dict[str, Any]:
    """`config` without some (section, key) pairs."""
    return {
        section: {key: value for key, value in values.items() if (section, key) not in keys}
        if isinstance(values, Mapping)
        else values
        for section, values in config.items()
    }


def file_digest(path: Path) -> str:
    """SHA-256 of a file's content, hexadecimal."""
    with open_regular(path) as file:
        return (
            hashlib.file_digest(file, "sha256").hexdigest()
            if hasattr(hashlib, "file_digest")
            else _read(file)
        )


def _read(file: Any) -> str:  # Python 3.10 has no hashlib.file_digest
    digest = hashlib.sha256()
    while block := file.read(1 << 20):
        digest.update(block)
    return digest.hexdigest()


def file_state(found: os.stat_result) -> list[int]:
    """What a file that has not changed keeps."""
    return [found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns]


class DigestCache:
    """Digests of the user's files, remembered by inode, size, mtime and ctime so that weights are read once.

    Nobody but the system sets a file's ctime, so a file that was edited in place and had its mtime restored
    is read again. The cache only saves time: a lost or damaged cache file means reading again.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        self._known: dict[str, list[Any]] = {}
        try:
            loaded = read_json(file)
            self._known = loaded if isinstance(loaded, dict) else {}
        except (OSError, ValueError):
            self._known = {}

    def digest(self, path: Path, deep: bool = False) -> str:
        """SHA-256 of `path`; read again when the file changed, or when `deep`.

        Raises:
            ConfigError: when the file cannot be read.
        """
        try:
            before = path.stat()
            key = file_state(before)
            known = self._known.get(str(path.resolve()))
            if isinstance(known, list) and known[:-1] == key and not deep:
                return str(known[-1])
            digest = file_digest(path)
            settled = time.time_ns() - max(before.st_mtime_ns, before.st_ctime_ns) > SETTLED_NS
            if settled and file_state(path.stat()) == key:
                self._known[str(path.resolve())] = [*key, digest]
                self._save()
        except OSError as error:
            remedy = "give a file that is there and that you may read"
            rule = f"cannot be read ({error.strerror})"
            raise ConfigError([Problem(str(path), None, rule, remedy)]) from error
        return digest

    def _save(self) -> None:
        try:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            temporary = self._file.with_suffix(".tmp")
            temporary.write_text(json.dumps(self._known), encoding="utf-8")
            temporary.replace(self._file)
        except OSError:
            return  # a store that cannot be written is reported where it matters
