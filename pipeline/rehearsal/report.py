"""Reports of a rehearsal: a table for people, JSON for programs, one line for scripts."""

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
    """Return True if something was proven and nothing failed."""
    states = {proof.state for proof in proofs}
    return "proven" in states and "failed" not in states


def write(directory: Path, proofs: Sequence[Proof], overrides: Sequence[str], duration_s: float) -> Path:
    """Write report.md and the JSON file; return the path of report.md.

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
    rows = "\n".join(f"| {_cell(proof.what)} | {proof.state} | {_cell(proof.told)} |" for proof in proofs)
    text = (
        f"# Rehearsal {'passed' if result['passed'] else 'failed'}\n\n"
        f"{time.strftime('%Y-%m-%d %H:%M:%S %z')}, {elapsed(duration_s)}\n\n"
        f"    grpoflow rehearse {' '.join(overrides)}\n\n"
        f"| what | | seen |\n|---|---|---|\n{rows}\n"
    )
    try:
        directory.mkdir(parents=True, exist_ok=True)
        (directory / MARKDOWN).write_text(text, encoding="utf-8")
        part = directory / f"{REPORT}.part"
        part.write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        part.replace(directory / REPORT)
    except OSError as error:
        raise StoreError(f"{directory}: {error.strerror}") from error
    return directory / MARKDOWN


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


def _cell(text: str) -> str:
    """Escape the text of a cell in a Markdown table."""
    for sign in "\\`*_{}[]<>|":
        text = text.replace(sign, f"\\{sign}")
    return " ".join(text.split())
