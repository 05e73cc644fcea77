"""Logs that grow while they are read: their new lines, and how long all of them have been silent."""

from __future__ import annotations

import time
from pathlib import Path


class Follower:
    """The lines that are added to a file."""

    def __init__(self, path: Path) -> None:
        self.path, self._offset, self._rest = path, 0, b""

    def lines(self) -> list[str]:
        """Whole lines since the last call; none while the file does not exist."""
        if not self.path.exists():
            return []
        with self.path.open("rb") as file:
            file.seek(self._offset)
            data = file.read()
        self._offset += len(data)
        *lines, self._rest = (self._rest + data).split(b"\n")
        return [line.decode("utf-8", errors="replace") for line in lines]


class Silence:
    """Watches the sizes of all logs in a directory."""

    def __init__(self, logs: Path) -> None:
        self.logs = logs
        self._sizes: dict[Path, int] = {}
        self._last_word = time.monotonic()

    def seconds(self) -> float:
        """Since a process last wrote a line."""
        sizes = {path: path.stat().st_size for path in self.logs.glob("*.log")}
        if sizes != self._sizes:
            self._sizes, self._last_word = sizes, time.monotonic()
        return time.monotonic() - self._last_word
