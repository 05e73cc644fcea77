"""Tables and warnings from the data cards of a tokenize artifact; imports nothing heavy."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

COLUMNS = ("file", "read", "used", "left out", "cut", "repeats training")


def read_result(artifact: Path) -> Mapping[str, Any]:
    """Return the result.json of a tokenize artifact; empty if there is none."""
    try:
        result = json.loads((artifact / "result.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return result if isinstance(result, dict) else {}


def count_records(artifact: Path, split: str) -> int:
    """Return the number of rows of a split that a tokenize artifact states."""
    return int(read_result(artifact)["files"][split]["records"])


def table(result: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    """Yield one row per file, in the order of COLUMNS."""
    for name, card in result.get("files", {}).items():
        repeated = card.get("repeated", {}).get("rows", 0)
        counts = (card["rows_in"], card["rows_out"])
        yield name, *map(str, counts), _listed(card["dropped"]), _listed(card["truncated"]), str(repeated)
    if "left_out" in (train := result.get("train", {})):  # MindSpeed-RL's own records
        read = train["rows"] + train["left_out"]
        yield "train", str(read), str(train["rows"]), str(train["left_out"]), "0", ""


def _listed(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count}: {reason}" for reason, count in counts.items()) or "0"


def warnings(files: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """Yield a warning for rows that are cut, left out, or repeated in the test."""
    for name, card in files.items():
        for column, rows in card["truncated"].items():
            yield f"{name}: {rows} of {card['rows_in']} rows are cut to the length of {column}"
        for reason, rows in card["dropped"].items():
            yield f"{name}: {rows} of {card['rows_in']} rows are left out: {reason}"
        if repeated := card.get("repeated"):
            first = repeated["examples"][0]
            yield (
                f"{name}: {repeated['rows']} of {card['rows_out']} questions occur in training, for example "
                f"row {first['line']}, {first['question'][:80]!r}: their accuracy shows no generalisation"
            )
