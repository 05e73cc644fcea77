"""The artifact store: a directory per artifact, named by its fingerprint, either complete or absent.

    STORE/STAGE/FIRST-16-DIGITS/     one artifact: its files and manifest.json
    STORE/STAGE/.building-...        staging directory of an attempt; renamed when it is complete
    STORE/.work/STAGE-DIGITS/        checkpoints of an attempt, from which the next one resumes (attempt.py)
    STORE/.checkpoints/STAGE-DIGITS/ last checkpoint of a finished attempt, from which longer runs continue
    STORE/.logs/STAGE-DIGITS/        spec.json, progress.jsonl and logs of the latest attempts
    STORE/.quarantine/...            damaged artifacts, and those replaced by run --force
    STORE/runs.jsonl                 history, one line per event

Commit: digest and fsync every file, manifest last, fsync the directory, one rename, fsync the
parent. If two processes build the same artifact, the first commit wins and the second process uses it.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from pipeline.errors import ConfigError, NoResult, StoreError, store_errors
from pipeline.store.durable import damage, fsync_directory, missing_file, settle, unreadable, write_json
from pipeline.store.leases import AlreadyLocked, is_locked, locked
from stages.base.files import is_digest_entry, read_json
from stages.base.reader import read

MANIFEST = "manifest.json"
FORMAT = 1
DIGITS = 16
NEVER_RUN = "never run"
JOB_LOCK = "job"
"""Purpose of the lock of a process that waits for the job that builds an artifact."""


@dataclass(frozen=True)
class Key:
    """Identity of an artifact: its stage and the fingerprint of the stage's inputs."""

    stage: str
    fingerprint: str

    def __str__(self) -> str:
        return f"{self.stage}/{self.fingerprint[:DIGITS]}"

    @property
    def flat(self) -> str:
        """STAGE-DIGITS, usable as a single path component."""
        return f"{self.stage}-{self.fingerprint[:DIGITS]}"


@dataclass(frozen=True)
class Manifest:
    """Content of an artifact's manifest.json."""

    stage: str
    fingerprint: str
    code_version: int
    config: Mapping[str, Any]
    inputs: Mapping[str, str]
    """Input name -> fingerprint."""
    external: Mapping[str, str]
    """Path of a user's file -> its SHA-256."""
    versions: Mapping[str, str]
    git_commit: str | None
    seed: int | None
    started: float
    """Unix time, seconds."""
    ended: float
    host: str
    peak_memory_gib: float
    required: tuple[str, ...]
    """Patterns of paths that the stage must have written, as planned (StageSpec.required)."""
    files: Mapping[str, Any] = field(default_factory=dict)
    """Relative path -> {size (bytes), sha256}."""
    format: int = FORMAT

    @classmethod
    def read(cls, file: Path) -> Manifest:
        """Read a manifest; raise StoreError if it is missing or malformed."""
        try:
            return cls.from_json(read_json(file))
        except FileNotFoundError as error:
            raise StoreError(f"manifest missing: {file}") from error
        except (OSError, ValueError) as error:
            raise StoreError(f"manifest corrupt: {file} ({error})") from error

    @classmethod
    def from_json(cls, values: Any) -> Manifest:
        """Create a manifest from its JSON value; raise ValueError if it is malformed."""
        try:
            manifest = read(cls, values)
        except (ConfigError, RecursionError) as error:
            raise ValueError(f"{error!s:.300}") from error
        if manifest.format != FORMAT or not manifest.files:
            raise ValueError("unknown format or no files")
        for name, entry in manifest.files.items():
            if not is_digest_entry(name, entry):
                raise ValueError(f"entry {name}")
        return manifest


def manifest_damage(error: StoreError, where: Path) -> str:
    """Return the damage that an error of reading a manifest shows; raise StoreError if it shows none."""
    if isinstance(error.__cause__, OSError):
        unreadable(error.__cause__, where)
    return str(error)


class Store:
    """One store directory, shared by processes and users of a group."""

    def __init__(self, root: Path) -> None:
        self.root = root.absolute()

    def open(self) -> None:
        """Create the store's directory; raise StoreError if it cannot be written."""
        with store_errors(self.root):
            self.root.mkdir(parents=True, exist_ok=True)
            probe = self.root / f".probe-{os.urandom(4).hex()}"
            probe.touch()
            probe.unlink()

    def path(self, key: Key) -> Path:
        """Return the artifact's directory, which may not exist."""
        return self.root / key.stage / key.fingerprint[:DIGITS]

    def work_dir(self, key: Key) -> Path:
        """Return the work directory of an attempt, which is kept if the attempt is killed."""
        return self.root / ".work" / key.flat

    def work_bytes(self, key: Key) -> int:
        """Return the size of the files in the work directory, which an attempt may be changing."""
        total = 0
        for directory, _, names in os.walk(self.work_dir(key)):
            for name in names:
                with contextlib.suppress(FileNotFoundError):
                    total += os.lstat(os.path.join(directory, name)).st_size
        return total

    def log_dir(self, key: Key) -> Path:
        """Return the directory with the logs of the attempts at this artifact."""
        return self.root / ".logs" / key.flat

    def problem(self, key: Key, deep: bool = False) -> str | None:
        """Return None if the artifact is complete, otherwise a description of the problem.

        Compared are names, sizes and the digests of small files (results, configurations, indices); with
        `deep` all digests.

        Raises:
            StoreError: the artifact cannot be read for a reason that says nothing about its content,
                for example missing permission.
        """
        path = self.path(key)
        with store_errors(path):
            if not path.is_dir():
                return NEVER_RUN
        try:
            manifest = self.manifest(key)
        except StoreError as error:
            return manifest_damage(error, path)
        missing = missing_file(manifest.required, manifest.files)
        if missing is not None:  # written by a program that did not check this
            return f"output missing: the stage ended without {missing}"
        try:
            for name, entry in manifest.files.items():
                problem = damage(path, name, entry, deep)
                if problem is not None:
                    return problem
        except OSError as error:
            return unreadable(error, path)
        return None

    def manifest(self, key: Key) -> Manifest:
        """Read an artifact's manifest; raise StoreError if it is missing, malformed or another artifact's."""
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
    def lock(self, key: Key, on_wait: Callable[[], None] = lambda: None, purpose: str = "") -> Iterator[None]:
        """Hold the artifact's build lock; `on_wait` is called if another process holds it.

        With a `purpose` it is another lock: a process that waits for a job must not lock the job out.

        The lock only prevents duplicate work. On file systems without working locks (some NFS mounts),
        attempt slots and the atomic commit still keep the store consistent.
        """
        file = self._lock_file(key, purpose)
        try:
            lock = locked(file, self.root, wait=False)
        except AlreadyLocked:
            on_wait()
            lock = locked(file, self.root)
        with lock:
            yield

    def is_being_built(self, key: Key, purpose: str = "") -> bool:
        """Return True if a process, on any machine, holds the artifact's build lock."""
        return is_locked(self._lock_file(key, purpose))

    def _lock_file(self, key: Key, purpose: str) -> Path:
        return self.root / ".locks" / f"{key.flat}{f'.{purpose}' if purpose else ''}.lock"

    def manifest_digest(self, key: Key) -> str | None:
        """Return the SHA-256 of an artifact's manifest.json, which differs for each build; None if absent."""
        try:
            return hashlib.sha256((self.path(key) / MANIFEST).read_bytes()).hexdigest()
        except OSError:
            return None

    def commit(self, staging: Path, manifest: Manifest, replaces: str | None = None) -> Path:
        """Commit `staging` as the artifact of its manifest, or discard it if a complete one exists.

        Args:
            staging: directory with the artifact's files.
            manifest: its manifest; its files, if any, were digested while they were downloaded.
            replaces: manifest digest of an existing artifact that this one replaces; it moves to quarantine.

        Raises:
            NoResult: a required file is missing.
            StoreError: the stage wrote outside its directory, or the disk is full.
        """
        key = Key(manifest.stage, manifest.fingerprint)
        final = self.path(key)
        with store_errors(staging):
            files = settle(staging, MANIFEST, manifest.files)
            if manifest.files and files != manifest.files:
                raise StoreError(f"{staging}: was changed after it was downloaded")
            missing = missing_file(manifest.required, files)
            if missing is not None or not files:
                raise NoResult(f"ended with exit code 0, but without {missing or 'any file'}")
            write_json(staging / MANIFEST, {**asdict(manifest), "files": files})
            self.quarantine_damaged(key)
            if replaces is not None and self.manifest_digest(key) == replaces:
                self.quarantine(key)
            try:
                staging.rename(final)
            except OSError as error:
                if error.errno not in (errno.ENOTEMPTY, errno.EEXIST) or self.problem(key) is not None:
                    raise
                shutil.rmtree(staging)  # another process committed a complete artifact first
            fsync_directory(final.parent)
        return final

    def quarantine(self, key: Key) -> Path | None:
        """Move an artifact to quarantine until `gc --delete`; return its new path, or None if absent."""
        return self.quarantine_path(self.path(key), key.flat)

    def quarantine_path(self, path: Path, name: str) -> Path | None:
        """Move a directory to quarantine as NAME-RANDOM; return its new path, or None if it is missing."""
        target = self.root / ".quarantine" / f"{name}-{os.urandom(4).hex()}"
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            path.rename(target)
        except FileNotFoundError:
            return None
        return target

    def quarantine_damaged(self, key: Key) -> None:
        """Move the artifact to quarantine if it exists and is damaged."""
        if self.problem(key) not in (None, NEVER_RUN):
            self.quarantine(key)
