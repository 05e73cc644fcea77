"""An attempt to build an artifact: its directories and its lock.

An attempt has a slot: a work directory STORE/.work/STAGE-DIGITS, logs and a staging directory. Its process
holds the slot's lock, which is released when the process ends; the next attempt then uses the slot and
resumes from its checkpoints. If the slot is still locked (only on file systems where the artifact's lock does
not work), the next slot (…+1, …+2) is used: two live attempts share no files and only duplicate work.
"""

import contextlib
import itertools
import shutil
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from pipeline.errors import store_errors
from pipeline.store.leases import PATIENCE_S, AlreadyLocked, is_locked, locked
from pipeline.store.store import DIGITS, Key, Store
from stages.grpo.checkpoint import FINAL

FINAL_CHECKPOINTS = ".checkpoints"
"""Directory of the store with the final checkpoints of finished attempts, as STAGE-DIGITS/step_N."""


@dataclass(frozen=True)
class Attempt:
    """The directories of an attempt of this process."""

    work: Path
    """Directory for checkpoints; kept if the attempt is killed."""
    logs: Path
    staging: Path
    """Empty at the start; becomes the artifact."""

    @property
    def job(self) -> str:
        """Name of the job, which identifies the attempt's processes."""
        return str(self.work)

    def done(self) -> None:
        """Remove the work directory except the final checkpoint; call this once the artifact is committed."""
        final, name = self.work / FINAL, self.work.name.partition("+")[0]
        if final.is_dir():
            kept = self.work.parents[1] / FINAL_CHECKPOINTS / name
            with contextlib.suppress(OSError):  # the artifact is complete without it
                kept.parent.mkdir(exist_ok=True)
                shutil.rmtree(kept, ignore_errors=True)
                final.rename(kept)
        shutil.rmtree(self.work, ignore_errors=True)


@contextlib.contextmanager
def attempt(store: Store, key: Key) -> Iterator[Attempt]:
    """Hold a slot; its checkpoints are kept afterwards unless `done` was called.

    Raises:
        StoreError: the store cannot be written.
    """
    suffix, lock = _lock_slot(store, key)
    with lock:
        slot = Attempt(
            store.work_dir(key).with_name(key.flat + suffix),
            store.log_dir(key).with_name(key.flat + suffix),
            store.path(key).with_name(f".building-{key.fingerprint[:DIGITS]}{suffix}"),
        )
        with store_errors(store.root):
            for directory in (slot.work, slot.logs, slot.staging.parent):
                directory.mkdir(parents=True, exist_ok=True)
            if slot.staging.exists():  # left by a killed attempt
                shutil.rmtree(slot.staging)
            slot.staging.mkdir()
        try:
            yield slot
        finally:
            shutil.rmtree(slot.staging, ignore_errors=True)


def is_held(work: Path) -> bool:
    """Return True if a live attempt uses this directory of STORE/.work."""
    return is_locked(_lock_file(work.parents[1], work.name))


def find_all(root: Path, artifact: str) -> list[Path]:
    """Return the work directories of all attempts at STAGE/DIGITS, the one in use or last used first."""
    slots = []
    for work in slot_directories(root / ".work", artifact):
        with contextlib.suppress(FileNotFoundError):  # its attempt has just ended
            slots.append((is_held(work), work.stat().st_mtime, work))
    return [work for *_, work in sorted(slots, reverse=True)]


def slot_directories(parent: Path, artifact: str) -> list[Path]:
    """Return the directories of all slots of STAGE/DIGITS in STORE/.work or STORE/.logs."""
    name = artifact.replace("/", "-")
    return [*parent.glob(name), *parent.glob(f"{name}+*")]


def _lock_slot(store: Store, key: Key) -> tuple[str, AbstractContextManager[object]]:
    """Lock the first free slot; return the suffix of its directories, and the lock."""
    for number in itertools.count():
        suffix = f"+{number}" if number else ""
        file = _lock_file(store.root, key.flat + suffix)
        with contextlib.suppress(AlreadyLocked):
            return suffix, locked(file, store.root, wait=False, patience_s=PATIENCE_S)
    raise AssertionError("unreachable")


def _lock_file(root: Path, name: str) -> Path:
    return root / ".locks" / f"{name}.attempt.lock"


def find_log(root: Path, artifact: str) -> Path | None:
    """Return worker 0's log of the latest attempt at STAGE/DIGITS, or the stage's if that is empty."""
    directory = newest_attempt(root, artifact)
    if directory is None:
        return None
    plain = directory / "stage.log"
    file = worker_logs(directory).get(0, plain)
    if file.is_file() and file.stat().st_size:
        return file
    return plain if plain.is_file() else None


def newest_attempt(root: Path, artifact: str) -> Path | None:
    """Return the logs of the attempt at STAGE/DIGITS that wrote last."""
    attempts = slot_directories(root / ".logs", artifact)
    return max((path for path in attempts if path.is_dir()), key=last_written, default=None)


def worker_logs(directory: Path) -> dict[int, Path]:
    """Return the newest log of each worker, by its number."""
    logs = {}
    files = (file for file in directory.rglob("worker_*.log") if file.stem[7:].isdecimal() and file.is_file())
    for file in sorted(files, key=lambda file: file.stat().st_mtime_ns):
        logs[int(file.stem[7:])] = file
    return logs


def last_written(directory: Path) -> int:
    """Return the time of the last change of a log, in nanoseconds; 0 without logs."""
    return max((file.stat().st_mtime_ns for file in directory.rglob("*.log")), default=0)
