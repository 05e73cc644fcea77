"""Which rehearsals passed: remembered in the store by what was rehearsed."""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Iterator
from pathlib import Path

from filelock import FileLock, Timeout

from pipeline import rehearsal
from pipeline.config import Config
from pipeline.disk_cache import recall, remember
from pipeline.errors import ConfigError, StoreError
from pipeline.fingerprint import canonical, without
from pipeline.graph import Plan
from pipeline.store import DIGITS, Store, told
from stages.identity import identity as counting

HERE = frozenset({"store", "launcher", "report", "fetch", "cards"})
"""Sections about a machine, or about what follows training."""
ORIGIN = frozenset({("model", "source"), ("model", "hub"), ("dataset", "source"), ("dataset", "hub")})
ROOM, REPORT, SCRATCH = ".rehearsals", "report.json", "scratch"


def fingerprint(plan: Plan) -> str:
    """Of configuration, data, the user's own code, and the code of every checkout."""
    config = {name: values for name, values in plan.config.plain().items() if name not in HERE}
    homes = {
        setting: _code(Path(home))
        for part in rehearsal.of(plan.config).values()
        for setting, home in part.checkouts(plan.config).items()
        if home is not None
    }
    content = {
        "config": without(counting(Config, config), ORIGIN),
        "data": plan.spec("fetch_dataset").key.fingerprint,
        "external": sorted(plan.spec("grpo").external.values()),
        "checkouts": homes,
    }
    return hashlib.sha256(canonical(content).encode()).hexdigest()


def directory(store: Store, identity: str) -> Path:
    """Where a rehearsal's report lies."""
    return store.root / ROOM / identity[:DIGITS]


@contextlib.contextmanager
def alone(place: Path) -> Iterator[None]:
    """Let no other process rehearse, or clear away, in the directory of one rehearsal.

    Raises:
        StoreError: another one does, or it cannot be written.
    """
    try:
        place.mkdir(parents=True, exist_ok=True)
        lock = FileLock(place / "lock", mode=0o664)
        lock.acquire(timeout=0)
    except Timeout:
        raise StoreError(f"{place}: is being rehearsed by another process; wait until it has ended") from None
    except OSError as error:
        raise told(error, place) from error
    try:
        yield
    finally:
        lock.release()


def left(store: Store) -> Iterator[Path]:
    """Scratch directories of rehearsals that failed or were ended, none of them in use."""
    for scratch in sorted((store.root / ROOM).glob(f"*/{SCRATCH}")):
        with contextlib.suppress(StoreError), alone(scratch.parent):
            yield scratch


def notes(plan: Plan, store: Store) -> tuple[str, ...]:
    """What a plan says of a run that could be rehearsed here and was not."""
    try:
        parts = rehearsal.of(plan.config).values()
        identity = fingerprint(plan)
        homes = [home for part in parts for home in part.checkouts(plan.config).values()]
    except (ConfigError, OSError):
        return ()
    if not all(homes) or _passed(directory(store, identity)):
        return ()
    return (
        "not rehearsed with this configuration and these checkouts: grpoflow rehearse with the same overrides"
        " executes them on this machine's CPU, before a card is taken",
    )


def _passed(place: Path) -> bool:
    try:
        return bool(json.loads((place / REPORT).read_text(encoding="utf-8"))["passed"])
    except (OSError, ValueError, KeyError, TypeError):
        return False


def _code(home: Path) -> str:
    """Digest of a checkout's Python files; read again only when sizes or times changed."""
    files = sorted(path for path in _python_files(home))
    states = [(str(path.relative_to(home)), path.stat().st_size, path.stat().st_mtime_ns) for path in files]
    key = hashlib.sha256(canonical([str(home.resolve()), states]).encode()).hexdigest()
    found = recall("checkout", key)
    if isinstance(found, str):
        return found
    digest = hashlib.sha256()
    for path in files:
        digest.update(f"{path.relative_to(home)}\0".encode() + hashlib.sha256(path.read_bytes()).digest())
    remember("checkout", key, digest.hexdigest())
    return digest.hexdigest()


def _python_files(home: Path) -> Iterator[Path]:
    """All but those that are no part of what is executed: tests, and what lies in hidden directories."""
    for path in home.rglob("*.py"):
        parts = path.relative_to(home).parts
        if not any(part.startswith(".") or part == "tests" for part in parts[:-1]):
            yield path
