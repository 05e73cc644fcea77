"""Fingerprints of rehearsals, under which the store records those that passed."""

import functools
import hashlib
from collections.abc import Iterator
from pathlib import Path

from pipeline import engines
from pipeline.config.sections import Config
from pipeline.errors import ConfigError
from pipeline.fingerprint import canonical, without
from pipeline.plan.graph import Plan
from pipeline.store import rehearsals
from pipeline.store.store import Store
from stages.base.identity import identity

MACHINE_SECTIONS = frozenset({"store", "launcher", "report", "fetch", "cards", "remote"})
"""Sections about the machine, or about stages after training."""
ORIGIN = frozenset({("model", "source"), ("model", "hub"), ("dataset", "source"), ("dataset", "hub")})


def fingerprint(plan: Plan) -> str:
    """Return the fingerprint of configuration, data, the user's code, and the code of all checkouts.

    Raises:
        ConfigError: an engine of the run cannot be rehearsed.
    """
    config = {name: values for name, values in plan.config.plain().items() if name not in MACHINE_SECTIONS}
    homes = {
        setting: checkout_digest(Path(home))
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
    """Return a plan's note if the run could be rehearsed here and was not."""
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


@functools.cache
def checkout_digest(home: Path) -> str:
    """Return the digest of a checkout's Python files; read once for all points of a sweep."""
    digest = hashlib.sha256()
    for path in sorted(_python_files(home)):
        digest.update(f"{path.relative_to(home)}\0".encode() + hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


def _python_files(home: Path) -> Iterator[Path]:
    """Yield a checkout's Python files, without tests and hidden directories."""
    for path in home.rglob("*.py"):
        parts = path.relative_to(home).parts
        if not any(part.startswith(".") or part == "tests" for part in parts[:-1]):
            yield path
