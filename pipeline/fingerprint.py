"""Fingerprints of artifacts: SHA-256 of canonical JSON of everything that determines the content.

Paths, host names and times are not part of it, so a store can be moved and shared.
"""

import hashlib
import json
import os
import time
from collections.abc import Mapping, Set
from pathlib import Path
from typing import Any

from pipeline.cache import recall, remember
from pipeline.errors import ConfigError, Problem
from stages.base.files import file_digest

KIND = "digest"
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


def file_state(status: os.stat_result) -> list[int]:
    """Return inode, size, mtime and ctime, which stay equal as long as a file is not changed."""
    return [status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns]


def cached_digest(path: Path) -> str:
    """Return the SHA-256 of a user's file, which is cached by path, inode, size, mtime and ctime.

    Programs cannot set ctime, so a file that was edited and had its mtime restored is hashed again.
    Raise ConfigError if the file cannot be read.
    """
    try:
        state = file_state(path.stat())
        key = hashlib.sha256(json.dumps([str(path.resolve()), *state]).encode()).hexdigest()
        known = recall(KIND, key)
        if isinstance(known, str):
            return known
        digest = file_digest(path)
        is_settled = time.time_ns() - max(state[-2:]) > SETTLED_NS
        if is_settled and file_state(path.stat()) == state:
            remember(KIND, key, digest)
    except OSError as error:
        remedy = "give a file that is there and that you may read"
        rule = f"cannot be read ({error.strerror})"
        raise ConfigError([Problem(str(path), None, rule, remedy)]) from error
    return digest
