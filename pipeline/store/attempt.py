"""One attempt at an artifact: the directories that it writes, and whose they are.

An attempt takes a seat: STORE/.work/STAGE-DIGITS, with its logs and its staging directory. Whoever
finds a living owner there takes the next seat (…+1, …+2). While the artifact's lock holds, that never
happens: a seat that is taken was left by a dead process, whose checkpoints its heir goes on from. Should
the lock not hold (some NFS mounts), two attempts share nothing and cost duplicate work, no more.

The owner is the file owner-N of highest N, or nobody when it is called free-N. Taking over creates
owner-(N+1) exclusively, which file systems do atomically even where their locks are broken.
"""

import contextlib
import itertools
import json
import os
import shutil
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil

from pipeline.errors import StoreError
from pipeline.store.store import DIGITS, Key, Store
from stages.base.files import parse_json, read_bytes

BEAT_S = 5.0
WATCH_S = 30.0
"""How long an owner on another machine is watched for a sign of life; NFS shows a write when the file
is opened again."""
FREE = "free"


@dataclass
class Attempt:
    """A seat that this process holds."""

    work: Path
    """Scratch that outlives a killed attempt."""
    logs: Path
    staging: Path
    """Empty at the start; becomes the artifact."""
    _owner: Path
    _beats: int = 0
    _last_beat: float = 0.0

    @property
    def job(self) -> str:
        """Name of the job whose processes write here."""
        return str(self.work)

    def beat(self) -> None:
        """Tell other machines that this attempt lives; cheap, call it often."""
        if time.monotonic() - self._last_beat >= BEAT_S:
            self._beats += 1
            self._last_beat = time.monotonic()
            self._owner.write_text(_me(self._beats), encoding="utf-8")

    def done(self) -> None:
        """The artifact is committed: nothing of the attempt but its logs is needed any more."""
        shutil.rmtree(self.work, ignore_errors=True)


@contextlib.contextmanager
def attempt(store: Store, key: Key) -> Iterator[Attempt]:
    """Hold a seat; gives it up at the end, with the checkpoints in it unless `done` was called.

    Raises:
        StoreError: the store cannot be written.
    """
    try:
        seat = next(seat for number in itertools.count() if (seat := _take(store, key, number)))
        for directory in (seat.logs, seat.staging.parent):
            directory.mkdir(parents=True, exist_ok=True)
        if seat.staging.exists():  # a dead owner's
            shutil.rmtree(seat.staging)
        seat.staging.mkdir()
    except OSError as error:
        raise StoreError.of(error, store.root) from error
    try:
        yield seat
    finally:
        shutil.rmtree(seat.staging, ignore_errors=True)
        with contextlib.suppress(FileNotFoundError):  # gone with `done`
            seat._owner.rename(seat._owner.with_name(seat._owner.name.replace("owner", FREE)))


def is_held(work: Path) -> bool:
    """Whether a living process sits in `work`; may watch another machine's owner for WATCH_S."""
    owner = _owner(work)
    return owner is not None and _is_alive(owner)


def shows_life(owner: Path, since: float) -> bool:
    """Whether an owner has given a sign of life after `since`, or is a living process of this machine.

    The second is told by no clock, which somebody may have put back meanwhile.
    """
    return owner.lstat().st_mtime >= since or bool(_lives_here(_read(owner) or ""))


def _take(store: Store, key: Key, number: int) -> Attempt | None:
    """Sit down on the numbered seat, or None when somebody living sits there."""
    suffix = f"+{number}" if number else ""
    work = store.work_dir(key).with_name(key.flat + suffix)
    while True:
        work.mkdir(parents=True, exist_ok=True)
        last = _owner(work)
        if last is not None and _is_alive(last):
            return None
        mine = work / f"owner-{1 + (_number(last) if last else 0)}"
        try:
            mine.touch(exist_ok=False)
            mine.write_text(_me(0), encoding="utf-8")
        except (FileExistsError, FileNotFoundError):
            continue  # somebody was faster, or has just ended; look again
        except OSError:
            mine.unlink(missing_ok=True)
            raise
        if last is not None:
            last.unlink(missing_ok=True)
        logs = store.log_dir(key).with_name(key.flat + suffix)
        staging = store.path(key).with_name(f".building-{key.fingerprint[:DIGITS]}{suffix}")
        return Attempt(work, logs, staging, mine)


def _owner(work: Path) -> Path | None:
    owners = (*work.glob("owner-*"), *work.glob(f"{FREE}-*"))
    return max((owner for owner in owners if _is_numbered(owner)), key=_number, default=None)


def _is_numbered(owner: Path) -> bool:
    return owner.name.partition("-")[2].isdecimal()


def _number(owner: Path) -> int:
    return int(owner.name.partition("-")[2])


def _is_alive(owner: Path) -> bool:
    """Here: whether the process exists. Elsewhere: whether its beat goes on."""
    before = _read(owner)
    if before is None or owner.name.startswith(FREE):
        return False
    here = _lives_here(before)
    if here is not None:
        return here
    deadline = time.monotonic() + WATCH_S
    while time.monotonic() < deadline:
        now = _read(owner)
        if now != before:
            return now is not None
        time.sleep(min(1.0, WATCH_S))
    return False


def _lives_here(content: str) -> bool | None:
    """Whether an owner's process exists; None where it is another machine's, or none can tell."""
    with contextlib.suppress(ValueError, KeyError, TypeError, OverflowError):
        said = parse_json(content)
        if said["place"] == _place():
            return bool(psutil.pid_exists(said["pid"]) and _started(said["pid"]) == said["started"])
    return None


def _read(owner: Path) -> str | None:
    try:
        return read_bytes(owner).decode("utf-8", "replace")
    except FileNotFoundError:  # given up meanwhile
        return None
    except OSError:  # no file that an owner wrote; whoever it was gives no sign of life
        return ""


def _me(beats: int) -> str:
    pid = os.getpid()
    return json.dumps({"place": _place(), "pid": pid, "started": _started(pid), "beats": beats})


def _place() -> str:
    """Where process ids mean the same: containers of one host name have namespaces of their own."""
    try:
        return f"{socket.gethostname()} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return socket.gethostname()


def _started(pid: int) -> int | None:
    """When a process began, in clock ticks since boot: its number may have been another's before.

    Not psutil's create_time, which moves with the clock on the wall.
    """
    try:
        fields = (
            Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        )
    except OSError:
        return None
    return int(fields[19])  # field 22 of proc(5), the third being the first after the name
