"""How long the history was, and its digest: lost lines are noticed before gc removes anything."""

import hashlib
import json
import os
from pathlib import Path
from typing import Any

from stages.base.files import open_regular, read_json

FILE = ".runs.json"
"""Beside the history."""


def bear(history: Path) -> None:
    """Remember the history's length and digest, unless it has lost what was remembered before.

    It only grows, so that whatever was true of its beginning stays true, in whatever order several processes
    write this down.
    """
    digest = hashlib.sha256()
    with open_regular(history) as file:
        remembered = _remembered(history)
        if remembered is not None:
            digest.update(file.read(remembered["bytes"]))
            if digest.hexdigest() != remembered["sha256"]:
                return
        digest.update(file.read())
        values = {"bytes": file.tell(), "sha256": digest.hexdigest()}
    temporary = history.with_name(f"{FILE}.{os.urandom(4).hex()}")
    temporary.write_text(json.dumps(values), encoding="utf-8")
    temporary.replace(history.with_name(FILE))


def holds(history: Path) -> bool:
    """Whether the history still begins with what is remembered of it."""
    remembered = _remembered(history)
    if remembered is None:
        return True
    try:
        with open_regular(history) as file:
            return hashlib.sha256(file.read(remembered["bytes"])).hexdigest() == str(remembered["sha256"])
    except FileNotFoundError:
        return False


def _remembered(history: Path) -> dict[str, Any] | None:
    """What is remembered; None where nothing is, or nothing that can be read."""
    try:
        values = read_json(history.with_name(FILE))
    except (FileNotFoundError, ValueError):
        return None
    sound = isinstance(values, dict) and isinstance(values.get("bytes"), int) and values["bytes"] >= 0
    return values if sound and isinstance(values.get("sha256"), str) else None
