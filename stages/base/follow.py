"""New lines of growing logs, and the time since a directory's logs last grew."""

import contextlib
import os
import time
from pathlib import Path


class Follower:
    """Reader of the lines that are added to a file."""

    def __init__(self, path: Path) -> None:
        self.path, self._offset, self._rest, self._inode = path, 0, b"", 0

    def lines(self) -> list[str]:
        """Return the complete lines since the last call; none while the file does not exist.

        A new file, as after Slurm's restart of a job, is read from its beginning.
        """
        try:
            file = self.path.open("rb")
        except FileNotFoundError:
            return []
        with file:
            state = os.fstat(file.fileno())
            if state.st_ino != self._inode or state.st_size < self._offset:
                self._inode, self._offset, self._rest = state.st_ino, 0, b""
            file.seek(self._offset)
            data = file.read()
        self._offset += len(data)
        *lines, self._rest = (self._rest + data).split(b"\n")
        return [line.decode("utf-8", errors="replace") for line in lines]


class Silence:
    """Watch over the logs of a directory."""

    def __init__(self, logs: Path) -> None:
        self.logs = logs
        self._times: dict[Path, int] = {}
        self._last_change = time.monotonic()

    def seconds(self) -> float:
        """Return the seconds since a log last changed."""
        times = {}
        for path in self.logs.glob("*.log"):
            with contextlib.suppress(OSError):  # a restart has moved it away, or its server does not answer
                times[path] = path.stat().st_mtime_ns
        if times != self._times:
            self._times, self._last_change = times, time.monotonic()
        return time.monotonic() - self._last_change
