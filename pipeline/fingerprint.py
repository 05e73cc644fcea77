"""Fingerprints of artifacts: SHA-256 of canonical JSON of everything that determines the content.

Paths, host names and times are not part of it, so a store can be moved and shared.
"""

import contextlib
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
"""File name of the digest cache in a store."""
SETTLED_NS = 2_000_000_000
"""Minimum age of a cached file's last change: a later change within one tick of the file system's clock would
leave its timestamps equal."""


def canonical(value: object) -> str:
    """Return JSON with sorted keys and no spaces; NaN and infinity raise ValueError."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def fingerprint(
    stage: str,
    version: int,
    config: Mapping[str, Any],
    inputs: Mapping[str, str],
    external: Mapping[str, str],
) -> str:
    """Return the fingerprint of a stage's artifact as 64 hexadecimal digits.

    Args:
        stage: the stage's name.
        version: its code version.
        config: the fingerprinted part of the sections that it reads (stages/base/identity.py).
        inputs: input name -> fingerprint.
        external: name of a user file -> SHA-256 of its content.
    """
    content = {"stage": stage, "version": version, "config": config}
    content |= {"inputs": dict(inputs), "external": dict(external)}
    return hashlib.sha256(canonical(content).encode()).hexdigest()


def without(config: Mapping[str, Any], keys: Set[tuple[str, str]]) -> dict[str, Any]:
    """Return `config` without the given (section, key) pairs."""
    return {
        section: {key: value for key, value in values.items() if (section, key) not in keys}
        if isinstance(values, Mapping)
        else values
        for section, values in config.items()
    }


def file_digest(path: Path) -> str:
    """Return the SHA-256 of a file's content as hexadecimal digits."""
    digest = hashlib.sha256()
    with open_regular(path) as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def file_state(status: os.stat_result) -> list[int]:
    """Return inode, size, mtime and ctime, which stay equal as long as a file is not changed."""
    return [status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns]


class DigestCache:
    """Cache of file digests by inode, size, mtime and ctime, so that large files are hashed once.

    Programs cannot set ctime, so a file that was edited and had its mtime restored is hashed again. If the
    cache file is lost or damaged, files are hashed again.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        self._known: dict[str, list[Any]] = {}
        with contextlib.suppress(OSError, ValueError):
            loaded = read_json(file)
            self._known = loaded if isinstance(loaded, dict) else {}

    def digest(self, path: Path) -> str:
        """Return the SHA-256 of a file.

        Raises:
            ConfigError: the file cannot be read.
        """
        try:
            before = path.stat()
            key = file_state(before)
            known = self._known.get(str(path.resolve()))
            if isinstance(known, list) and known[:-1] == key:
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
        with contextlib.suppress(OSError):  # a store that cannot be written is reported when a stage starts
            self._file.parent.mkdir(parents=True, exist_ok=True)
            temporary = self._file.with_suffix(".tmp")
            temporary.write_text(json.dumps(self._known), encoding="utf-8")
            temporary.replace(self._file)
