"""What a rehearsal leaves: a table for people, JSON for programs, one line for scripts."""

import json
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from pipeline.errors import StoreError
from pipeline.store.rehearsals import REPORT
from pipeline.terminal import Table, console, elapsed
from stages.engines.rehearsal import Proof

MARKDOWN = "report.md"


def has_passed(proofs: Sequence[Proof]) -> bool:
    """Whether something was proven, and nothing failed."""
    states = {proof.state for proof in proofs}
    return "proven" in states and "failed" not in states


def write(place: Path, proofs: Sequence[Proof], overrides: Sequence[str], took_s: float) -> Path:
    """Write both files; returns the readable one.

    Raises:
        StoreError: the store cannot be written.
    """
    told = {
        "passed": has_passed(proofs),
        "overrides": list(overrides),
        "at": time.time(),
        "took_s": round(took_s, 1),
        "proofs": [asdict(proof) for proof in proofs],
    }
    rows = "\n".join(f"| {_cell(proof.what)} | {proof.state} | {_cell(proof.told)} |" for proof in proofs)
    text = (
        f"# Rehearsal {'passed' if told['passed'] else 'failed'}\n\n"
        f"{time.strftime('%Y-%m-%d %H:%M:%S %z')}, {elapsed(took_s)}\n\n"
        f"    grpoflow rehearse {' '.join(overrides)}\n\n"
        f"| what | | seen |\n|---|---|---|\n{rows}\n"
    )
    try:
        place.mkdir(parents=True, exist_ok=True)
        (place / MARKDOWN).write_text(text, encoding="utf-8")
        part = place / f"{REPORT}.part"
        part.write_text(json.dumps(told, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        part.replace(place / REPORT)  # last: it is what a plan believes
    except OSError as error:
        raise StoreError(f"{place}: {error.strerror}") from error
    return place / MARKDOWN


def show(proofs: Sequence[Proof]) -> None:
    """Print the table."""
    table = Table("what", "", "seen", show_lines=False)
    for proof in proofs:
        table.add_row(proof.what, proof.state, proof.told)
    console().print(table)


def last_line(proofs: Sequence[Proof], page: Path) -> str:
    """For programs."""
    counts = Counter(proof.state for proof in proofs)
    numbers = " ".join(f"{state}={counts[state]}" for state in ("proven", "failed", "unproven"))
    return f"rehearsal {'passed' if has_passed(proofs) else 'failed'} {numbers} report={page}"


def _cell(text: str) -> str:
    """One cell of a Markdown table: a model's or a program's words are shown, never rendered."""
    for sign in "\\`*_{}[]<>|":
        text = text.replace(sign, f"\\{sign}")
    return " ".join(text.split())
