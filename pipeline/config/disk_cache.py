"""Small JSON values that take longer to compute than to read, kept between runs below ~/.cache."""

import contextlib
import json
import os
import tempfile
from pathlib import Path
from typing import Any

KEPT = 256  # entries per kind


def recall(kind: str, key: str) -> Any:
    """The value remembered under `key`; None where there is none, or it was cut short."""
    try:
        return json.loads((_directory(kind) / f"{key}.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def remember(kind: str, key: str, value: Any) -> None:
    """Keep `value`; the oldest entries go. A cache that can't be written only costs time."""
    with contextlib.suppress(OSError, TypeError):
        directory = _directory(kind)
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        with tempfile.NamedTemporaryFile("w", dir=directory, delete=False, encoding="utf-8") as file:
            json.dump(value, file)
        os.replace(file.name, directory / f"{key}.json")
        entries = sorted(directory.glob("*.json"), key=lambda path: path.stat().st_mtime)
        for old in entries[:-KEPT]:
            old.unlink(missing_ok=True)


def _directory(kind: str) -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(base) / "grpoflow" / kind
