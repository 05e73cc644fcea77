"""Which rehearsals passed: remembered in the store by what was rehearsed."""

import hashlib
from collections.abc import Iterator
from pathlib import Path

from pipeline import engines
from pipeline.config.disk_cache import recall, remember
from pipeline.config.load import Config
from pipeline.errors import ConfigError
from pipeline.fingerprint import canonical, without
from pipeline.plan.graph import Plan
from pipeline.store import rehearsals
from pipeline.store.store import Store
from stages.base.identity import identity

HERE = frozenset({"store", "launcher", "report", "fetch", "cards", "remote"})
"""Sections about a machine, or about what follows training."""
ORIGIN = frozenset({("model", "source"), ("model", "hub"), ("dataset", "source"), ("dataset", "hub")})


def fingerprint(plan: Plan) -> str:
    """Of configuration, data, the user's own code, and the code of every checkout.

    Raises:
        ConfigError: a part of the run cannot be rehearsed.
    """
    config = {name: values for name, values in plan.config.plain().items() if name not in HERE}
    homes = {
        setting: _code(Path(home))
        for setting, home in engines.rehearsed(plan.config).items()
        if home is not None
    }
    content = {
        "config": without(identity(Config, config), ORIGIN),
        "data": plan.spec("fetch_dataset").key.fingerprint,
        "external": sorted(plan.spec("grpo").external.values()),
        "checkouts": homes,
    }
    return hashlib.sha256(canonical(content).encode()).hexdigest()


def notes(plan: Plan, store: Store) -> tuple[str, ...]:
    """What a plan says of a run that could be rehearsed here and was not."""
    try:
        homes = engines.rehearsed(plan.config).values()
        if not all(homes) or rehearsals.has_passed(rehearsals.directory(store, fingerprint(plan))):
            return ()
    except (ConfigError, OSError):
        return ()
    return (
        "not rehearsed with this configuration and these checkouts: grpoflow rehearse with the same overrides"
        " executes them on this machine's CPU, before a card is taken",
    )


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
