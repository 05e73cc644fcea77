"""Small JSON values that take long to compute, cached between commands below $XDG_CACHE_HOME/grpoflow.

Used for composed configurations, digests of users' files and trial runs of reward functions. A key must
cover everything that its value depends on.
"""

import contextlib
import json
import os
import tempfile
from pathlib import Path
from typing import Any

MOST_ENTRIES = 2048
"""Upper limit of entries per kind; the oldest are deleted. A large model alone has 160 files with digests."""


def recall(kind: str, key: str) -> Any:
    """Return the value remembered under `key`, or None."""
    try:
        return json.loads((_directory(kind) / f"{key}.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def remember(kind: str, key: str, value: Any) -> None:
    """Store `value` under `key`; do nothing if it is no JSON or the directory cannot be written."""
    with contextlib.suppress(OSError, TypeError):  # YAML dates are no JSON
        text, directory = json.dumps(value), _directory(kind)
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor, name = tempfile.mkstemp(dir=directory)
        try:
            with open(descriptor, "w", encoding="utf-8") as file:
                file.write(text)
            os.replace(name, directory / f"{key}.json")
        except OSError:  # the disk is full
            os.unlink(name)
            raise
        entries = list(directory.glob("*.json"))
        if len(entries) > MOST_ENTRIES:  # half of them at once, because sorting takes long
            for old in sorted(entries, key=lambda path: path.stat().st_mtime)[: MOST_ENTRIES // 2]:
                old.unlink(missing_ok=True)


def _directory(kind: str) -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(base) / "grpoflow" / kind
