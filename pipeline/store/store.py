"""The artifact store: directories that are either whole and named after what they are, or absent.

    STORE/STAGE/FIRST-16-DIGITS/     one artifact: its files and manifest.json
    STORE/STAGE/.building-...        an attempt; renamed when it is whole
    STORE/.work/STAGE-DIGITS/        checkpoints of an attempt, offered to the next one (attempt.py)
    STORE/.logs/STAGE-DIGITS/        spec.json, progress.jsonl and logs of the latest attempts
    STORE/.quarantine/...            what was found damaged
    STORE/.editions/STAGE-DIGITS+N   built anew for the Nth time (run --force); the last one is current
    STORE/runs.jsonl                 history, one line per event

Commit: digest and fsync every file, manifest last, fsync the directory, one rename, fsync the
parent. Whoever loses a race finds the winner's artifact, verifies it and uses it.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from pipeline.errors import NoResult, StoreError
from pipeline.store.durable import damage, fsync_directory, settle, unreadable, write_json
from pipeline.store.leases import Taken, locked
from stages.base.files import read_json
from stages.must_hold import lacking

MANIFEST = "manifest.json"
FORMAT = 1
DIGITS = 16
NEVER_RUN = "never run"
EDITIONS = ".editions"


@dataclass(frozen=True)
class Key:
    """Which artifact: a stage and the fingerprint of all that went into it."""

    stage: str
    fingerprint: str

    def __str__(self) -> str:
        return f"{self.stage}/{self.fingerprint[:DIGITS]}"

    @property
    def flat(self) -> str:
        """One path component."""
        return f"{self.stage}-{self.fingerprint[:DIGITS]}"


@dataclass(frozen=True)
class Manifest:
    """What manifest.json says of an artifact."""

    stage: str
    fingerprint: str
    code_version: int
    config: dict[str, Any]
    inputs: dict[str, str]
    """Input name -> fingerprint."""
    external: dict[str, str]
    """User's file -> SHA-256."""
    versions: dict[str, str]
    git_commit: str | None
    seed: int | None
    started: float
    """Unix time, seconds."""
    ended: float
    host: str
    peak_memory_gib: float
    files: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Relative path -> {size (bytes), sha256}."""
    format: int = FORMAT

    @classmethod
    def read(cls, file: Path) -> Manifest:
        """Read and check a manifest's form.

        Raises:
            StoreError: it is missing or malformed.
        """
        try:
            return cls.of(read_json(file))
        except FileNotFoundError as error:
            raise StoreError(f"manifest missing: {file}") from error
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise StoreError(f"manifest corrupt: {file} ({error})") from error

    @classmethod
    def of(cls, values: Any) -> Manifest:
        """A manifest from its JSON value; ValueError, TypeError or KeyError where it cannot be one."""
        manifest = cls(**values)
        manifest._check()
        return manifest

    def _check(self) -> None:
        """Raise ValueError where a field is not what it must be."""
        kinds: dict[type | tuple[type, ...], tuple[str, ...]] = {
            str: ("stage", "fingerprint", "host"),
            (int, float): ("started", "ended", "peak_memory_gib"),
            dict: ("config", "inputs", "external", "versions", "files"),
        }
        for kind, names in kinds.items():
            for name in names:
                if not isinstance(getattr(self, name), kind):
                    raise ValueError(f"{name}={getattr(self, name)!r:.100}")
        if self.format != FORMAT or not self.files:
            raise ValueError("unknown format or no files")
        for name, entry in self.files.items():
            known = isinstance(entry, dict) and type(entry.get("size")) is int
            if not known or not isinstance(entry.get("sha256"), str):
                raise ValueError(f"entry {name}")
            if Path(name).is_absolute() or ".." in Path(name).parts or "\0" in name:
                raise ValueError(f"entry {name}")


class Store:
    """One store directory, shared by processes and users of a group."""

    def __init__(self, root: Path) -> None:
        self.root = root.absolute()

    def open(self) -> None:
        """Make the store's directory.

        Raises:
            StoreError: it cannot be made or written.
        """
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            probe = self.root / f".probe-{os.urandom(4).hex()}"
            probe.touch()
            probe.unlink()
        except OSError as error:
            raise StoreError.of(error, self.root) from error

    def path(self, key: Key) -> Path:
        """Where the artifact is, or would be."""
        return self.root / key.stage / key.fingerprint[:DIGITS]

    def work_dir(self, key: Key) -> Path:
        """Scratch that outlives a killed attempt."""
        return self.root / ".work" / key.flat

    def log_dir(self, key: Key) -> Path:
        """Logs of the attempts at this artifact."""
        return self.root / ".logs" / key.flat

    def editions(self) -> dict[str, int]:
        """How often artifacts were built anew, by `flat` of the first ones' keys; those that were.

        Raises:
            StoreError: the store may not be looked into.
        """
        numbers: dict[str, int] = {}
        try:
            for mark in (self.root / EDITIONS).iterdir():
                flat, _, number = mark.name.rpartition("+")
                if number.isdecimal():
                    numbers[flat] = max(int(number), numbers.get(flat, 0))
        except (FileNotFoundError, NotADirectoryError):
            return {}
        except OSError as error:
            raise StoreError.of(error, self.root) from error
        return numbers

    def set_edition(self, first: Key, number: int) -> None:
        """Let plans take what was built anew for the `number`th time, from now on.

        Raises:
            StoreError: the store cannot be written.
        """
        mark = self.root / EDITIONS / f"{first.flat}+{number}"
        try:
            mark.parent.mkdir(parents=True, exist_ok=True)
            mark.touch()
            fsync_directory(mark.parent)
        except OSError as error:
            raise StoreError.of(error, mark) from error

    def problem(self, key: Key, deep: bool = False) -> str | None:
        """None when the artifact is whole, otherwise what is wrong with it.

        Args:
            key: which artifact.
            deep: compare every file's digest; otherwise names, sizes and the digests of small files,
                which is where results, configurations and indices stand.

        Raises:
            StoreError: the store may not be looked into, or this process cannot read it just now.
        """
        path = self.path(key)
        try:
            if not path.is_dir():
                return NEVER_RUN
        except OSError as error:
            raise StoreError.of(error, path) from error
        try:
            manifest = self.manifest(key)
        except StoreError as error:
            if isinstance(error.__cause__, OSError):
                unreadable(error.__cause__, path)
            return str(error)
        sizes = {name: entry["size"] for name, entry in manifest.files.items()}
        lack = lacking(manifest.stage, manifest.config, sizes)
        if lack is not None:  # committed before this was looked at
            return f"output missing: the stage ended without {lack}"
        try:
            for name, entry in manifest.files.items():
                problem = damage(path, name, entry, deep)
                if problem is not None:
                    return problem
        except OSError as error:
            return unreadable(error, path)
        return None

    def manifest(self, key: Key) -> Manifest:
        """Read an artifact's manifest.

        Raises:
            StoreError: it is missing, malformed, or belongs to another fingerprint.
        """
        file = self.path(key) / MANIFEST
        manifest = Manifest.read(file)
        if manifest.fingerprint != key.fingerprint or manifest.stage != key.stage:
            raise StoreError(
                f"manifest corrupt: {file} is of {manifest.stage}/{manifest.fingerprint[:DIGITS]}"
            )
        return manifest

    def manifests(self, stage: str) -> list[Manifest]:
        """All readable manifests of a stage, newest first."""
        manifests = []
        for file in (self.root / stage).glob(f"[0-9a-f]*/{MANIFEST}"):
            with contextlib.suppress(StoreError):
                manifests.append(Manifest.read(file))
        return sorted(manifests, key=lambda manifest: manifest.ended, reverse=True)

    @contextlib.contextmanager
    def lock(self, key: Key, on_wait: Callable[[], None] = lambda: None) -> Iterator[None]:
        """Hold the artifact's lock; others that want to build it wait, and `on_wait` tells so.

        The lock saves work. Should it not hold (some NFS mounts), attempts and commit still keep the
        store right.
        """
        file = self.root / ".locks" / f"{key.flat}.lock"
        try:
            lock = locked(file, self.root, wait=False)
        except Taken:
            on_wait()
            lock = locked(file, self.root)
        with lock:
            yield

    def commit(self, staging: Path, manifest: Manifest) -> Path:
        """Make `staging` the artifact of its manifest, or discard it if a whole one is there already.

        A manifest that names files already was compared with them while they were written.

        Raises:
            NoResult: the stage did not write what its artifact must hold.
            StoreError: the stage wrote outside its directory, or the disk is full.
        """
        key = Key(manifest.stage, manifest.fingerprint)
        final = self.path(key)
        try:
            files = settle(staging, MANIFEST, manifest.files)
            lack = lacking(key.stage, manifest.config, {name: entry["size"] for name, entry in files.items()})
            if lack is not None or not files:
                raise NoResult(f"ended with exit code 0, but without {lack or 'any file'}")
            write_json(staging / MANIFEST, {**asdict(manifest), "files": files})
            self.quarantine_damaged(key)
            try:
                staging.rename(final)
            except OSError as error:
                if error.errno not in (errno.ENOTEMPTY, errno.EEXIST) or self.problem(key) is not None:
                    raise
                shutil.rmtree(staging)  # somebody else was first, and theirs is whole
            fsync_directory(final.parent)
        except OSError as error:
            raise StoreError.of(error, staging) from error
        return final

    def quarantine(self, key: Key) -> Path | None:
        """Move a damaged artifact out of the way, for a person to look at."""
        return self.quarantine_path(self.path(key), key.flat)

    def quarantine_path(self, path: Path, name: str) -> Path | None:
        """Move a damaged directory out of the way, under a name that tells what it was."""
        target = self.root / ".quarantine" / f"{name}-{os.urandom(4).hex()}"
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            path.rename(target)
        except FileNotFoundError:
            return None
        return target

    def quarantine_damaged(self, key: Key) -> None:
        """Move the artifact away if it is there and not whole; an absent one is not damaged."""
        if self.problem(key) not in (None, NEVER_RUN):
            self.quarantine(key)
