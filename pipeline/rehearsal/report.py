"""Directory and reports of a rehearsal: a table, JSON for programs, and one line for scripts."""

import json
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict
from pathlib import Path

from pipeline.errors import StoreError
from pipeline.store.leases import AlreadyLocked, locked
from pipeline.store.store import DIGITS, Key, Store
from pipeline.terminal import Table, console
from stages.engines.rehearsal import Proof

REPORT = "report.json"


def directory(store: Store, trained: Key) -> Path:
    """Return the directory of the rehearsal of a run, which is named by its grpo artifact."""
    return store.root / ".rehearsals" / trained.fingerprint[:DIGITS]


def exclusive(directory: Path) -> AbstractContextManager[object]:
    """Lock a rehearsal's directory.

    Raises:
        StoreError: another process holds the lock, or the directory cannot be written.
    """
    try:
        return locked(directory / "lock", directory, wait=False)
    except AlreadyLocked:
        message = f"{directory}: is being rehearsed by another process; wait until it has ended"
        raise StoreError(message) from None


def has_passed(proofs: Sequence[Proof]) -> bool:
    """Return True if something was proven and nothing failed."""
    states = {proof.state for proof in proofs}
    return "proven" in states and "failed" not in states


def write(directory: Path, proofs: Sequence[Proof], overrides: Sequence[str], duration_s: float) -> Path:
    """Write report.json; return its path.

    Raises:
        StoreError: the store cannot be written.
    """
    result = {
        "passed": has_passed(proofs),
        "overrides": list(overrides),
        "at": time.time(),
        "took_s": round(duration_s, 1),
        "proofs": [asdict(proof) for proof in proofs],
    }
    part = directory / f"{REPORT}.part"
    try:
        part.write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        return part.replace(directory / REPORT)
    except OSError as error:
        raise StoreError(f"{directory}: {error.strerror}") from error


def show(proofs: Sequence[Proof]) -> None:
    """Print the table."""
    table = Table("what", "", "seen", show_lines=False)
    for proof in proofs:
        table.add_row(proof.what, proof.state, proof.told)
    console().print(table)


def last_line(proofs: Sequence[Proof], page: Path) -> str:
    """Return the last line of the output, for scripts."""
    counts = Counter(proof.state for proof in proofs)
    numbers = " ".join(f"{state}={counts[state]}" for state in ("proven", "failed", "unproven"))
    return f"rehearsal {'passed' if has_passed(proofs) else 'failed'} {numbers} report={page}"
