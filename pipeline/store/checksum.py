"""Length and digest of the history; gc compares them to detect lost lines before it removes anything."""

import hashlib
import json
import os
from pathlib import Path
from typing import Any

from stages.base.files import open_regular, read_json

FILE = ".runs.json"
"""File name, in the store's directory."""


def update(history: Path) -> None:
    """Write length and digest of the history, unless it has lost lines since they were last written.

    The history only grows, so several processes may do this in any order.
    """
    digest = hashlib.sha256()
    with open_regular(history) as file:
        stored = _read(history)
        if stored is not None:
            digest.update(file.read(stored["bytes"]))
            if digest.hexdigest() != stored["sha256"]:
                return
        digest.update(file.read())
        values = {"bytes": file.tell(), "sha256": digest.hexdigest()}
    temporary = history.with_name(f"{FILE}.{os.urandom(4).hex()}")
    temporary.write_text(json.dumps(values), encoding="utf-8")
    temporary.replace(history.with_name(FILE))


def matches(history: Path) -> bool:
    """Return True if the history still begins with the content that was digested."""
    stored = _read(history)
    if stored is None:
        return True
    try:
        with open_regular(history) as file:
            return hashlib.sha256(file.read(stored["bytes"])).hexdigest() == str(stored["sha256"])
    except FileNotFoundError:
        return False


def _read(history: Path) -> dict[str, Any] | None:
    """Return the stored values, or None if the file is missing or malformed."""
    try:
        values = read_json(history.with_name(FILE))
    except (FileNotFoundError, ValueError):
        return None
    is_valid = isinstance(values, dict) and isinstance(values.get("bytes"), int) and values["bytes"] >= 0
    return values if is_valid and isinstance(values.get("sha256"), str) else None
