"""Identity of an artifact: what went into it, and nothing about where or when.

A fingerprint is the SHA-256 of canonical JSON. Paths, host names and times stay out, so that a
store can move and two users can share one.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Set
from pathlib import Path
from typing import Any

from pipeline.errors import ConfigError, Problem
from stages.engine_config import LOCATIONS

PATH_KEYS = frozenset(
    {
        ("model", "path"),
        ("model", "tokenizer_path"),
        ("dataset", "path"),
        ("dataset", "test_path"),
        ("train", "resume_from"),
        ("sft_data", "path"),
        ("mindformers", "home"),
    }
    | {(section, key) for section in ("engine", "mindformers") for key in LOCATIONS}
)
"""Config keys that say where something lies; the content's digest stands in the place of the user's files."""
NO_MATTER = frozenset({("train", "loggers"), ("engine", "sft")})
"""Config keys that change nothing of what a stage computes: who else is told of it, and who trained the
weights that it starts from, which are an input with a fingerprint of its own."""
MEANS = frozenset({"fetch"})
"""Sections that say how something comes here, and change nothing of what it holds."""


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
        config: the part of the configuration that it reads.
        inputs: input name -> fingerprint.
        external: name of a user's file -> SHA-256 of its content.

    Returns:
        64 hexadecimal digits.
    """
    content = {
        "stage": stage,
        "version": version,
        "config": without_paths(config),
        "inputs": dict(inputs),
        "external": dict(external),
    }
    return hashlib.sha256(canonical(content).encode()).hexdigest()


def without_paths(config: Mapping[str, Any]) -> dict[str, Any]:
    """`config` without what only says where something lies or how it comes here."""
    kept = {section: values for section, values in config.items() if section not in MEANS}
    return without(kept, PATH_KEYS | NO_MATTER)


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
    with path.open("rb") as file:
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


class DigestCache:
    """Digests of the user's files, remembered by (inode, size, mtime) so that weights are read once.

    The cache only saves time: a lost or damaged cache file means reading again.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        self._known: dict[str, list[Any]] = {}
        try:
            loaded = json.loads(file.read_text(encoding="utf-8"))
            self._known = loaded if isinstance(loaded, dict) else {}
        except (OSError, ValueError):
            self._known = {}

    def digest(self, path: Path, deep: bool = False) -> str:
        """SHA-256 of `path`; read again when the file changed, or when `deep`.

        Raises:
            ConfigError: when the file cannot be read.
        """
        try:
            stat = path.stat()
            key = [stat.st_ino, stat.st_size, stat.st_mtime_ns]
            known = self._known.get(str(path.resolve()))
            if known and known[:3] == key and not deep:
                return str(known[3])
            digest = file_digest(path)
        except OSError as error:
            raise ConfigError([Problem(str(path), None, f"cannot be read ({error.strerror})")]) from error
        self._known[str(path.resolve())] = [*key, digest]
        self._save()
        return digest

    def _save(self) -> None:
        try:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            temporary = self._file.with_suffix(".tmp")
            temporary.write_text(json.dumps(self._known), encoding="utf-8")
            temporary.replace(self._file)
        except OSError:
            return  # a store that cannot be written is reported where it matters
